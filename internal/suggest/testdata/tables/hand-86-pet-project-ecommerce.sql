-- from: dolartand/pet-project-ecommerce backend/src/main/resources/db/migration/V14__Create_outbox_events_table.sql
-- want: topic=? key=aggregate_id column=processed pending=false,null sent=true sent_at=processed_at attempts=retry_count error=error_message created=created_at
CREATE TABLE outbox_events (
    id VARCHAR(36) PRIMARY KEY,
    aggregate_id VARCHAR(255) NOT NULL,
    event_type VARCHAR(100) NOT NULL,
    payload TEXT NOT NULL,
    routing_key VARCHAR(255),
    exchange_name VARCHAR(255),
    created_at TIMESTAMP NOT NULL,
    processed BOOLEAN DEFAULT FALSE,
    processed_at TIMESTAMP NULL,
    retry_count INTEGER DEFAULT 0,
    max_retries INTEGER DEFAULT 3,
    error_message TEXT);
