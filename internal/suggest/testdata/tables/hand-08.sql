-- from: stored public code, index: "V4__outbox_events.sql" (headers, status NEW)
-- want: topic=? key=aggregate_id column=status pending=NEW sent=?PUBLISHED sent_at=published_at created=occurred_at
CREATE TABLE outbox_events (
    id UUID PRIMARY KEY,
    aggregate_type VARCHAR(32) NOT NULL,
    aggregate_id UUID NOT NULL,
    event_type VARCHAR(64) NOT NULL,
    payload JSONB NOT NULL,
    headers JSONB,
    occurred_at TIMESTAMPTZ NOT NULL,
    published_at TIMESTAMPTZ,
    status VARCHAR(12) NOT NULL DEFAULT 'NEW');
