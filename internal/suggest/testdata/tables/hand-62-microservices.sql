-- from: sonuudigital/microservices order-service/internal/db/migrations/000002_create_outbox_event_table.up.sql
-- want: topic=? key=?aggregate_id column=status pending=UNPUBLISHED sent=PUBLISHED sent_at=published_at created=created_at
CREATE TYPE outbox_event_status AS ENUM ('UNPUBLISHED', 'PUBLISHED', 'CANCELLED');
CREATE TABLE outbox_events (
    id UUID PRIMARY KEY,
    aggregate_id UUID NOT NULL UNIQUE,
    event_name VARCHAR(150) NOT NULL,
    payload JSONB NOT NULL,
    status outbox_event_status DEFAULT 'UNPUBLISHED' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT NOW() NOT NULL,
    published_at TIMESTAMP WITH TIME ZONE NULL);
