-- from: stored public code, index: "CREATE TABLE outbox_event (oeid BIGINT" (dogancaglar, liquibase)
-- want: id=oeid topic=? key=aggregate_id column=status pending=NEW sent=SENT created=created_at
CREATE TABLE outbox_event (
    oeid BIGINT NOT NULL,
    event_type VARCHAR(255) NOT NULL,
    aggregate_id VARCHAR(255) NOT NULL,
    payload TEXT NOT NULL,
    status VARCHAR(50) NOT NULL,
    created_at TIMESTAMP NOT NULL,
    PRIMARY KEY (oeid));
INSERT INTO outbox_event (oeid, event_type, aggregate_id, payload, status, created_at) VALUES
    (1, 'payment', 'a', '{}', 'NEW', now()),
    (2, 'payment', 'a', '{}', 'SENT', now());
