-- from: stored public code, index: Drizzle outbox_event_status ('PENDING', 'PROCESSED', 'FAILED')
-- want: topic=? key=aggregate_id column=status pending=PENDING sent=PROCESSED failed=FAILED sent_at=processed_at attempts=retry_count error=last_error created=created_at
CREATE TYPE "outbox_event_status" AS ENUM('PENDING', 'PROCESSED', 'FAILED');
CREATE TABLE outbox_events (
    "id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
    "event_type" text NOT NULL,
    "aggregate_type" text NOT NULL,
    "aggregate_id" text NOT NULL,
    "payload" text NOT NULL,
    "status" "outbox_event_status" DEFAULT 'PENDING' NOT NULL,
    "retry_count" integer DEFAULT 0 NOT NULL,
    "last_error" text,
    "created_at" timestamp with time zone DEFAULT now() NOT NULL,
    "processed_at" timestamp with time zone);
