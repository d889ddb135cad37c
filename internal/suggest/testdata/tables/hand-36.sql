-- from: stored public code, index: "topic VARCHAR(128), key VARCHAR(128), status VARCHAR(16) DEFAULT 'PENDING'"
-- want: topic=topic key=key column=status pending=PENDING sent=?PUBLISHED sent_at=published_at created=created_at
CREATE TABLE outbox_events (
    id UUID PRIMARY KEY,
    topic VARCHAR(128) NOT NULL,
    key VARCHAR(128) NOT NULL,
    payload JSONB NOT NULL,
    status VARCHAR(16) NOT NULL DEFAULT 'PENDING',
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    published_at TIMESTAMPTZ);
CREATE INDEX ON outbox_events (status, created_at);
