-- from: stored public code, index: "topic, key, payload BYTEA, status VARCHAR(255)" without default
-- want: topic=topic key=key column=status pending=CREATED sent=SENT created=created_at
CREATE TABLE outbox (
    id VARCHAR(255) PRIMARY KEY,
    topic VARCHAR(255) NOT NULL,
    key VARCHAR(255) NOT NULL,
    payload BYTEA NOT NULL,
    status VARCHAR(255) NOT NULL,
    created_at TIMESTAMP NOT NULL);
INSERT INTO outbox (id, topic, key, payload, status, created_at) VALUES
    ('a', 'orders', 'k', '\x01', 'CREATED', now()),
    ('b', 'orders', 'k', '\x01', 'SENT', now());
