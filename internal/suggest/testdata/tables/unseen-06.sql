-- from: made up after hand-written tables of public code: bytes of an envelope; dead is for good
-- want: topic=? key=aggregate_id payload=payload_envelope column=status pending=pending sent=dispatched failed=dead sent_at=dispatched_at attempts=attempt_count error=last_error due=next_retry_at created=created_at
CREATE TABLE notices_out (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    event_type varchar(100) NOT NULL,
    aggregate_type varchar(100) NOT NULL,
    aggregate_id uuid NOT NULL,
    payload_envelope bytea NOT NULL,
    status varchar(20) NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'dispatched', 'dead')),
    attempt_count int NOT NULL DEFAULT 0,
    last_error text,
    next_retry_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    dispatched_at timestamptz);
