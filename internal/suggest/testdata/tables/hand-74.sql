-- from: stored public code, index: goose outbox (event_type is the topic, published and published_at)
-- want: topic=? key=aggregate_id column=published pending=false sent=true sent_at=published_at created=created_at
CREATE TABLE outbox (
    id UUID PRIMARY KEY,
    event_type TEXT NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    published_at TIMESTAMPTZ,
    published BOOLEAN NOT NULL DEFAULT FALSE);
