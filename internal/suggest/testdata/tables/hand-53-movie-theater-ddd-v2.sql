-- from: Felyppe1/movie-theater-ddd-v2 prisma/migrations/20250408130318_new_outbox_table/migration.sql
-- want: topic=? key=? sent_at=processed_on created=occurred_on
CREATE TABLE "Outbox" (
    "id" TEXT NOT NULL,
    "event_name" TEXT NOT NULL,
    "payload" JSONB NOT NULL,
    "occurred_on" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "processed_on" TIMESTAMP(3),
    PRIMARY KEY ("id"));
