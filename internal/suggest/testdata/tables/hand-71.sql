-- from: stored public code, index: "outbox_event" (name, payload, created_at, updated_at)
-- want: topic=? key=? published=?none created=created_at
CREATE TABLE "outbox_event" (
    "id" bigserial PRIMARY KEY NOT NULL,
    "name" text NOT NULL,
    "payload" jsonb NOT NULL,
    "created_at" timestamp DEFAULT now() NOT NULL,
    "updated_at" timestamp DEFAULT now() NOT NULL);
