-- from: stored public code, index: Prisma "domain_event_outbox" (entityType, entityId, retryCount)
-- want: topic=? key=entityId column=status pending=pending sent=?published sent_at=publishedAt attempts=retryCount error=lastError created=createdAt
CREATE TABLE "domain_event_outbox" (
    "id" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "eventType" TEXT NOT NULL,
    "entityType" TEXT NOT NULL,
    "entityId" TEXT NOT NULL,
    "payload" JSONB NOT NULL,
    "metadata" JSONB NOT NULL,
    "status" TEXT NOT NULL DEFAULT 'pending',
    "publishedAt" TIMESTAMP(3),
    "retryCount" INTEGER NOT NULL DEFAULT 0,
    "lastError" TEXT,
    PRIMARY KEY ("id"));
