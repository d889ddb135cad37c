-- from: hegemonies/nio-postgres-kafka-connect sql/create-outbox-table.sql
-- want: topic=topic key=key payload=message published=?none created=created_at
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    topic TEXT NOT NULL,
    partition INT,
    key TEXT NOT NULL,
    message TEXT NOT NULL);
