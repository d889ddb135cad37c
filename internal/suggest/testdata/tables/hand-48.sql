-- from: stored public code, index: Prisma outbox_events (context, topic, availableAt, sentAt)
-- want: topic=topic key=? column=status pending=PENDING sent=SENT failed=FAILED sent_at=sentAt attempts=attempts error=lastError due=availableAt created=createdAt
CREATE TYPE "OutboxStatus" AS ENUM ('PENDING', 'SENT', 'FAILED');
CREATE TABLE outbox_events (
    "id" TEXT NOT NULL,
    "context" TEXT NOT NULL,
    "topic" TEXT NOT NULL,
    "payload" JSONB NOT NULL,
    "status" "OutboxStatus" NOT NULL DEFAULT 'PENDING',
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "lastError" TEXT,
    "availableAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "sentAt" TIMESTAMP(3),
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updatedAt" TIMESTAMP(3) NOT NULL,
    PRIMARY KEY ("id"));
