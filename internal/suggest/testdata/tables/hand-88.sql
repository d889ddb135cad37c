-- from: stored public code, index: "Outbox table for durable event publishing (event-service)"
-- want: topic=? key=? payload=body sent_at=sent_at attempts=attempts error=last_error created=created_at
CREATE TABLE event_outbox (
    id BIGSERIAL PRIMARY KEY,
    message_id UUID NOT NULL UNIQUE,
    routing_key TEXT NOT NULL,
    body JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    sent_at TIMESTAMPTZ NULL,
    attempts INT NOT NULL DEFAULT 0,
    last_error TEXT NULL);
