-- from: leedrum/supa-shop services/order/db/migrations/000002_create_outboxes_table.up.sql
-- want: topic=? key=aggregate_id sent_at=published_at created=created_at
CREATE TABLE outboxes (
    id UUID PRIMARY KEY,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    payload JSONB NOT NULL,
    published_at TIMESTAMPTZ NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
