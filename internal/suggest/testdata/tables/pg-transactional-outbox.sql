-- from: Zehelein/pg-transactional-outbox example-trx-polling.sql
-- want: profile=pg-transactional-outbox topic=?
CREATE TABLE outbox (
    id uuid PRIMARY KEY,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    message_type TEXT NOT NULL,
    segment TEXT,
    concurrency TEXT NOT NULL DEFAULT 'sequential',
    payload JSONB NOT NULL,
    metadata JSONB,
    locked_until TIMESTAMPTZ NOT NULL DEFAULT to_timestamp(0),
    created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    processed_at TIMESTAMPTZ,
    abandoned_at TIMESTAMPTZ,
    started_attempts smallint NOT NULL DEFAULT 0,
    finished_attempts smallint NOT NULL DEFAULT 0);
