-- from: stored public code, index 70144805085: EventPulse (outbox_id, message_key, published_at)
-- want: id=outbox_id topic=topic key=message_key sent_at=published_at attempts=attempts error=last_error created=created_at
CREATE TABLE outbox (
    outbox_id text PRIMARY KEY,
    topic text NOT NULL CHECK (topic IN ('telemetry-raw', 'telemetry-dlq')),
    message_key text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at timestamptz,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    last_error text);
