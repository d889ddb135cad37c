-- from: feature-toggle-platform/feature-toggle-outbox src/main/resources/META-INF/ftaas-outbox/db/outbox_events.sql
-- want: id=event_id topic=topic key=? payload=payload_json column=status pending=NEW sent=PUBLISHED failed=FAILED attempts=attempts error=error_msg created=created_at
CREATE TABLE outbox_events (
    event_id UUID PRIMARY KEY,
    type VARCHAR(100) NOT NULL,
    payload_json JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    attempts INT NOT NULL DEFAULT 0,
    max_attempts INT NOT NULL,
    status VARCHAR(20) NOT NULL,
    occurred_at TIMESTAMPTZ NOT NULL,
    error_msg TEXT,
    producer VARCHAR(100) NOT NULL,
    topic VARCHAR(100) NOT NULL);
INSERT INTO outbox_events (event_id, type, payload_json, max_attempts, status, occurred_at, producer, topic) VALUES
    (gen_random_uuid(), 'toggled', '{}', 5, 'NEW', now(), 'p', 'toggles'),
    (gen_random_uuid(), 'toggled', '{}', 5, 'PUBLISHED', now(), 'p', 'toggles'),
    (gen_random_uuid(), 'toggled', '{}', 5, 'FAILED', now(), 'p', 'toggles');
