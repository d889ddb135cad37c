-- from: made up after hand-written tables of public code: flags of rows that were given up, beside the time of the delivery
-- want: id=match_id topic=? key=? attempts=attempts due=next_attempt_at rows=failed_permanently error=last_error sent_at=delivered_at created=created_at order=created_at
CREATE TABLE finished_matches (
    match_id uuid PRIMARY KEY,
    payload jsonb NOT NULL,
    attempts int NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    failed_permanently boolean NOT NULL DEFAULT false,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    delivered_at timestamptz);
CREATE INDEX ON finished_matches (next_attempt_at) WHERE delivered_at IS NULL AND NOT failed_permanently;
