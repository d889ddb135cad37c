-- from: ElgarMokaya/presta-dev-test src/main/resources/db/migration/schemas/outbox_event.sql
-- want: topic=? key=aggregate_id sent_at=published_at created=created_at
CREATE TABLE outbox_event (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type VARCHAR(50) NOT NULL,
    aggregate_id UUID NOT NULL,
    event_type VARCHAR(50) NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    published_at TIMESTAMP);
