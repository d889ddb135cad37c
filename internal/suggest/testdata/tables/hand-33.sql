-- from: stored public code, index: "kafka_key TEXT NOT NULL, status INT NOT NULL DEFAULT 0 -- 0: Pending, 1: Done, 2: Failed"
-- want: topic=topic key=kafka_key column=status pending=0 sent=?1 created=created_at
CREATE TABLE outbox (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic TEXT NOT NULL,
    kafka_key TEXT NOT NULL,
    payload BYTEA NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT Now(),
    status INT NOT NULL DEFAULT 0);
