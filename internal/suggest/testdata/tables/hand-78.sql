-- from: stored public code, index: outbox_event (outbox_id, topic, event_key, payload_json, locked_by)
-- want: id=outbox_id topic=topic key=event_key payload=payload_json column=status pending=NEW processing=IN_PROGRESS sent=PUBLISHED failed=DEAD sent_at=published_at attempts=attempts error=last_error due=next_attempt_at created=created_at
CREATE TABLE outbox_event (
    outbox_id VARCHAR(128) NOT NULL,
    status VARCHAR(32) NOT NULL,
    topic VARCHAR(256) NOT NULL,
    event_key VARCHAR(256) NOT NULL,
    event_type VARCHAR(128) NOT NULL,
    aggregate_id VARCHAR(256),
    payload_json text NOT NULL,
    attempts INT DEFAULT 0 NOT NULL,
    next_attempt_at TIMESTAMP,
    last_error VARCHAR(2000),
    locked_by VARCHAR(128),
    locked_at TIMESTAMP,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL,
    published_at TIMESTAMP,
    PRIMARY KEY (outbox_id));
INSERT INTO outbox_event (outbox_id, status, topic, event_key, event_type, payload_json) VALUES
    ('a', 'NEW', 'orders', 'k', 't', '{}'),
    ('b', 'PUBLISHED', 'orders', 'k', 't', '{}'),
    ('c', 'IN_PROGRESS', 'orders', 'k', 't', '{}'),
    ('d', 'DEAD', 'orders', 'k', 't', '{}');
