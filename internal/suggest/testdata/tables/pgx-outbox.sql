-- from: nikolayk812/pgx-outbox internal/sql/01_outbox_messages.up.sql
-- want: topic=topic key=- sent_at=published_at created=created_at
CREATE TABLE outbox_messages (
    id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    broker TEXT NOT NULL,
    topic TEXT NOT NULL,
    metadata JSONB,
    payload JSONB NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL,
    published_at TIMESTAMP);
