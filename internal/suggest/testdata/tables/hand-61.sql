-- from: stored public code, index: "audit_created_at, type, details jsonb" (migrate Up)
-- want: topic=? key=? payload=details published=?none created=audit_created_at
CREATE TABLE "outbox_messages" (
    "id" uuid not null default gen_random_uuid(),
    "audit_created_at" timestamp not null default now(),
    "audit_updated_at" timestamp not null default now(),
    "type" text not null,
    "details" jsonb not null,
    primary key ("id"));
