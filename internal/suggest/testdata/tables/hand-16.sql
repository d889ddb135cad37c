-- from: stored public code, index 69408228772: outbox_events of webhooks (fanned_out_at)
-- want: topic=? key=aggregate_id sent_at=fanned_out_at created=created_at
CREATE TABLE outbox_events (
    id TEXT PRIMARY KEY,
    merchant_id TEXT NOT NULL,
    type TEXT NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    fanned_out_at TIMESTAMPTZ);
