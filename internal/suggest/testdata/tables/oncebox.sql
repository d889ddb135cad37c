-- from: dmitriy-iliyov/spring-outbox psql_outbox_table.sql
-- want: topic=? key=- column=status pending=PENDING processing=IN_PROCESS sent=PROCESSED failed=FAILED attempts=retry_count due=next_retry_at created=created_at
CREATE TABLE outbox_events (
    id UUID PRIMARY KEY,
    status VARCHAR(50) NOT NULL,
    event_type VARCHAR(255) NOT NULL,
    payload_type VARCHAR(255) NOT NULL,
    payload TEXT NOT NULL,
    retry_count INTEGER NOT NULL,
    next_retry_at TIMESTAMP NOT NULL,
    created_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL);
