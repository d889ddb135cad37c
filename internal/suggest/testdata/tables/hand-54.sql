-- from: stored public code, index: Prisma outbox (processed boolean, updated_at)
-- want: topic=? key=? column=processed pending=false sent=true created=created_at
CREATE TABLE outbox (
    "id" TEXT NOT NULL,
    "event_type" TEXT NOT NULL,
    "payload" JSONB NOT NULL,
    "processed" BOOLEAN NOT NULL DEFAULT false,
    "created_at" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMP(3) NOT NULL,
    PRIMARY KEY ("id"));
