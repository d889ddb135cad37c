-- from: rootstrap/active_outbox
-- want: topic=? key=aggregate_identifier published=?none created=created_at
CREATE TABLE outboxes (
    id bigserial PRIMARY KEY,
    identifier uuid NOT NULL UNIQUE,
    event varchar NOT NULL,
    payload jsonb,
    aggregate varchar NOT NULL,
    aggregate_identifier uuid NOT NULL,
    created_at timestamp(6) NOT NULL,
    updated_at timestamp(6) NOT NULL);
