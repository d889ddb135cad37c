-- from: stored public code, index: "V3__create_outbox_table.sql" (id, aggregate_type, aggregate_id uuid, created_at without default)
-- want: topic=? key=aggregate_id published=?none created=created_at
CREATE TABLE outbox (
    id UUID PRIMARY KEY,
    aggregate_type VARCHAR(255) NOT NULL,
    aggregate_id UUID NOT NULL,
    event_type VARCHAR(255) NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMP NOT NULL);
