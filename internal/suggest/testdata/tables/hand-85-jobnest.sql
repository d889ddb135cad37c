-- from: MiguelSperle/jobnest src/main/resources/db/migration/V6__create-events-outbox-table.sql
-- want: topic=? key=aggregate_id column=status pending=PENDING sent=SENT created=created_at
CREATE TABLE events_outbox (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    event_id VARCHAR(36) UNIQUE NOT NULL,
    payload BYTEA NOT NULL,
    aggregate_id VARCHAR(36) NOT NULL,
    aggregate_type VARCHAR(40) NOT NULL,
    event_type VARCHAR(100) NOT NULL,
    status VARCHAR(10) NOT NULL,
    exchange VARCHAR(100) NOT NULL,
    routing_key VARCHAR(100) NOT NULL,
    created_at TIMESTAMP NOT NULL);
INSERT INTO events_outbox (id, event_id, payload, aggregate_id, aggregate_type, event_type, status, exchange, routing_key, created_at) VALUES
    ('a', 'e', '\x7b7d', 'g', 'user', 'created', 'PENDING', 'ex', 'rk', now()),
    ('b', 'f', '\x7b7d', 'g', 'user', 'created', 'SENT', 'ex', 'rk', now());
