-- from: stored public code, index 7473351097: example of a guide (event_data, processed_at)
-- want: topic=? key=aggregate_id payload=event_data sent_at=processed_at created=created_at
CREATE TABLE outbox_events (
    id UUID PRIMARY KEY,
    aggregate_id UUID NOT NULL,
    event_type VARCHAR(100) NOT NULL,
    event_data JSONB NOT NULL,
    created_at TIMESTAMP DEFAULT NOW(),
    processed_at TIMESTAMP NULL);
