-- from: stored public code, index: "payload_json JSONB NOT NULL, status TEXT -- NEW / PUBLISHED / FAILED" (key_account_id)
-- want: topic=? key=aggregate_id payload=payload_json column=status pending=NEW sent=PUBLISHED failed=FAILED created=created_at
CREATE TABLE outbox_events (
    id BIGSERIAL PRIMARY KEY,
    aggregate_type TEXT NOT NULL,
    aggregate_id UUID NOT NULL,
    key_account_id UUID NULL,
    payload_json JSONB NOT NULL,
    status TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now());
INSERT INTO outbox_events (aggregate_type, aggregate_id, key_account_id, payload_json, status) VALUES
    ('account', '00000000-0000-0000-0000-000000000001', NULL, '{"a":1}', 'PUBLISHED'),
    ('account', '00000000-0000-0000-0000-000000000002', NULL, '{"a":2}', 'NEW'),
    ('account', '00000000-0000-0000-0000-000000000002', NULL, '{"a":2}', 'FAILED');
