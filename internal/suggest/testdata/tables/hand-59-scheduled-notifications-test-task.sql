-- from: artandrey/scheduled-notifications-test-task microservices/users/database/migrations/0001_material_leo.sql
-- want: topic=? key=? payload=event_data sent_at=processed_at created=created_at
CREATE TABLE outbox_messages (
    "id" uuid PRIMARY KEY NOT NULL,
    "event_type" text NOT NULL,
    "event_data" jsonb NOT NULL,
    "created_at" timestamp with time zone DEFAULT now() NOT NULL,
    "processed_at" timestamp with time zone);
