-- from: stored public code, index: "Phase 1: Communities core, transactional outbox"
-- want: topic=? key=aggregate_id sent_at=processed_at created=created_at
CREATE TABLE outbox_event (
    id BIGSERIAL PRIMARY KEY,
    aggregate_type TEXT NOT NULL,
    aggregate_id UUID NOT NULL,
    event_type TEXT NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    processed_at TIMESTAMPTZ NULL);
