-- from: stored public code, index: "Transactional outbox for reliable event publishing" (varchar 128)
-- want: topic=? key=aggregate_id sent_at=published_at created=created_at
CREATE TABLE outbox (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type VARCHAR(128) NOT NULL,
    aggregate_id VARCHAR(128) NOT NULL,
    event_type VARCHAR(128) NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    published_at TIMESTAMPTZ);
CREATE INDEX ON outbox (created_at) WHERE published_at IS NULL;
