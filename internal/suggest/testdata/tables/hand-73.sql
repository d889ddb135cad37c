-- from: stored public code, index: Prisma "Outbox" (topic, eventKey, publishedAt, attempts, lastError)
-- want: topic=topic key=eventKey sent_at=publishedAt attempts=attempts error=lastError created=createdAt
CREATE TABLE "Outbox" (
    "id" TEXT NOT NULL,
    "topic" TEXT NOT NULL,
    "eventKey" TEXT,
    "payload" JSONB NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "publishedAt" TIMESTAMP(3),
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "lastError" TEXT,
    PRIMARY KEY ("id"));
