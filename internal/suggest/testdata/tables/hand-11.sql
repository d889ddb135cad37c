-- from: stored public code, index 71582849722: outbox_events of reviews (kafka_key, publish_attempts)
-- want: topic=? key=kafka_key sent_at=published_at attempts=publish_attempts created=occurred_at
CREATE TABLE outbox_events (
    id BIGSERIAL PRIMARY KEY,
    event_id UUID NOT NULL UNIQUE,
    aggregate_type VARCHAR(50) NOT NULL DEFAULT 'review',
    aggregate_id BIGINT NOT NULL,
    kafka_key VARCHAR(24) NOT NULL,
    event_type VARCHAR(30) NOT NULL,
    payload JSONB NOT NULL,
    occurred_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    published_at TIMESTAMPTZ,
    publish_attempts INT NOT NULL DEFAULT 0);
