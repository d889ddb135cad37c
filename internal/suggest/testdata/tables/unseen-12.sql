-- from: made up after hand-written tables of public code: a destination that may be a topic
-- want: id=message_id topic=?destination key=? payload=payload_json sent_at=dispatched_at created=created_at
CREATE TABLE ingest_outbox (
    message_id text PRIMARY KEY,
    destination text NOT NULL,
    message_type text NOT NULL,
    payload_json jsonb NOT NULL,
    correlation_id text NOT NULL,
    created_at timestamptz NOT NULL,
    dispatched_at timestamptz);
