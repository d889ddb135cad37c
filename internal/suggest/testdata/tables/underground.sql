-- from: underground-dotnet/outbox
-- want: topic=? key=partition_key payload=data sent_at=processed_at attempts=retry_count created=created_at
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    type text NOT NULL,
    partition_key text NOT NULL,
    data jsonb NOT NULL,
    retry_count integer NOT NULL DEFAULT 0,
    processed_at timestamptz);
