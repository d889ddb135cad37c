-- from: made up after hand-written tables of public code: a claim by others, a routing key, dead letters
-- want: topic=? key=aggregate_id column=status pending=PENDING processing=PROCESSING sent=PUBLISHED failed=DEAD attempts=attempt_count due=next_retry_at,claimed_until error=last_error created=created_at sent_at=published_at
CREATE TABLE trips_outbox (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    event_id uuid NOT NULL UNIQUE,
    aggregate_type varchar(100) NOT NULL,
    aggregate_id uuid NOT NULL,
    event_type varchar(150) NOT NULL,
    routing_key varchar(150) NOT NULL,
    payload jsonb NOT NULL,
    status varchar(20) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'PUBLISHED', 'DEAD')),
    attempt_count integer NOT NULL DEFAULT 0,
    next_retry_at timestamptz NOT NULL DEFAULT now(),
    claim_id uuid,
    claimed_at timestamptz,
    claimed_until timestamptz,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz);
