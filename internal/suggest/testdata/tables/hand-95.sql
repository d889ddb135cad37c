-- from: stored public code, index 67109611206: transactional_outbox (payload bytea, claimed_until)
-- want: id=event_id topic=? key=aggregate_id sent_at=published_at attempts=attempts due=available_at,claimed_until created=occurred_at
CREATE TABLE transactional_outbox (
    event_id uuid PRIMARY KEY,
    event_type text NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id uuid NOT NULL,
    aggregate_version bigint NOT NULL CHECK (aggregate_version > 0),
    idempotency_key text NOT NULL,
    payload bytea NOT NULL CHECK (octet_length(payload) BETWEEN 1 AND 262144),
    occurred_at timestamptz NOT NULL,
    available_at timestamptz NOT NULL,
    claimed_until timestamptz,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    published_at timestamptz);
