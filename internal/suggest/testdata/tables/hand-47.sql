-- from: stored public code, index: Prisma "OutboxEvent" (nextAttemptAt, lastError, processedAt)
-- want: topic=? key=? column=status pending=pending processing=processing sent=sent failed=failed sent_at=processedAt attempts=attempts error=lastError due=nextAttemptAt created=createdAt
CREATE TYPE "OutboxStatus" AS ENUM ('pending', 'processing', 'sent', 'failed');
CREATE TABLE "OutboxEvent" (
    "id" TEXT NOT NULL,
    "type" TEXT NOT NULL,
    "payload" JSONB NOT NULL,
    "status" "OutboxStatus" NOT NULL DEFAULT 'pending',
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "nextAttemptAt" TIMESTAMP(3),
    "lastError" TEXT,
    "processedAt" TIMESTAMP(3),
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updatedAt" TIMESTAMP(3) NOT NULL,
    PRIMARY KEY ("id"));
