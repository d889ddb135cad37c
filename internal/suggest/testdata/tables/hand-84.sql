-- from: stored public code, index: sqlc "InsertEventToOutbox" (aggregate_name, schema_version, status pending/inflight/dispatched, claimed_at)
-- want: topic=? key=aggregate_id column=status pending=pending processing=inflight sent=dispatched sent_at=published_at attempts=attempts created=occurred_at
CREATE TABLE outbox (
    id uuid PRIMARY KEY,
    aggregate_name text NOT NULL,
    aggregate_id uuid NOT NULL,
    event_type text NOT NULL,
    schema_version int NOT NULL,
    occurred_at timestamptz NOT NULL,
    payload jsonb NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    claimed_at timestamptz,
    published_at timestamptz,
    attempts int NOT NULL DEFAULT 0);
INSERT INTO outbox (id, aggregate_name, aggregate_id, event_type, schema_version, occurred_at, payload, status) VALUES
    (gen_random_uuid(), 'order', gen_random_uuid(), 'placed', 1, now(), '{}', 'pending'),
    (gen_random_uuid(), 'order', gen_random_uuid(), 'placed', 1, now(), '{}', 'inflight'),
    (gen_random_uuid(), 'order', gen_random_uuid(), 'placed', 1, now(), '{}', 'dispatched');
