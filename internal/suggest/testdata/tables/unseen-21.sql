-- from: made up after hand-written tables of public code: partitioned by time, with an identity
-- want: id=id,created_at topic=? key=aggregate_id sent_at=published_at created=created_at order=id
CREATE TABLE events_out (
    id bigint GENERATED ALWAYS AS IDENTITY,
    aggregate_id text NOT NULL,
    event_type text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
