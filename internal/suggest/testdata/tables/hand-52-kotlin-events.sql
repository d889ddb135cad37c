-- from: turbomates/kotlin-events event-exposed/src/main/resources/outbox_events_postgres_table.sql
-- want: topic=? key=? payload=event sent_at=published_at created=created_at
CREATE TABLE outbox_events (
    id uuid NOT NULL PRIMARY KEY,
    event jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT timezone('UTC'::text, statement_timestamp()) NOT NULL,
    published_at timestamp with time zone);
