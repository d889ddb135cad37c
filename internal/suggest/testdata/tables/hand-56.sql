-- from: stored public code, index: Prisma "Outbox" (payload TEXT, processed, createdAt, processedAt)
-- want: topic=? key=? column=processed pending=false sent=true sent_at=processedAt created=createdAt
CREATE TABLE "Outbox" (
    "id" TEXT NOT NULL,
    "type" TEXT NOT NULL,
    "payload" TEXT NOT NULL,
    "processed" BOOLEAN NOT NULL DEFAULT false,
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "processedAt" TIMESTAMP(3),
    PRIMARY KEY ("id"));
