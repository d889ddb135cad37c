-- from: stored public code, index: goose outbox_status ('WAIT', 'PROCESSED')
-- want: topic=? key=? column=status pending=WAIT sent=PROCESSED created=created_at
CREATE TYPE outbox_status AS ENUM ('WAIT', 'PROCESSED');
CREATE TABLE outbox (
    id bigserial PRIMARY KEY,
    payload JSONB NOT NULL,
    status outbox_status NOT NULL,
    created_at timestamp NOT NULL DEFAULT NOW());
