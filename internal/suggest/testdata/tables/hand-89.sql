-- from: stored public code, index: "Create outbox table for event sourcing" (topic, published_at)
-- want: topic=topic key=? sent_at=published_at created=created_at
CREATE TABLE outbox (
    id SERIAL PRIMARY KEY,
    topic TEXT NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    published_at TIMESTAMPTZ);
