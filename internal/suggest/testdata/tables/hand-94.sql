-- from: stored public code, index: "domain_events (event_data, occurred_at, CHECK event_type)"
-- want: topic=? key=aggregate_id payload=event_data sent_at=published_at created=occurred_at
CREATE TABLE domain_events (
    id BIGSERIAL PRIMARY KEY,
    aggregate_id UUID NOT NULL,
    event_type VARCHAR(100) NOT NULL,
    event_data JSONB NOT NULL,
    occurred_at TIMESTAMP WITH TIME ZONE NOT NULL,
    published_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT valid_event_type CHECK (event_type IN ('TodoCreated', 'TodoUpdated', 'TodoCompleted')));
