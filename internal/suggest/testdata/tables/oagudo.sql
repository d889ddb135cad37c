-- from: oagudo/outbox
-- want: topic=? key=- published=delete attempts=times_attempted due=scheduled_at created=created_at
CREATE TABLE outbox (
    id UUID PRIMARY KEY,
    created_at timestamptz NOT NULL,
    scheduled_at timestamptz NOT NULL,
    metadata BYTEA,
    payload BYTEA NOT NULL,
    times_attempted INTEGER NOT NULL);
