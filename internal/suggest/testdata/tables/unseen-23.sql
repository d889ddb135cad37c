-- from: made up after hand-written tables of public code: two columns that may both be the content
-- want: topic=? key=aggregate_id payload=?data sent_at=processed_at created=created_at
CREATE TABLE dual_out (
    id bigserial PRIMARY KEY,
    aggregate_id text NOT NULL,
    type text NOT NULL,
    data jsonb NOT NULL,
    envelope jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz);
