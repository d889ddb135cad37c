-- from: made up after hand-written tables of public code: capitals, a flag and its time, soft deletes
-- want: id=Id topic=? key=? payload=Content column=Sent pending=false sent=true sent_at=SentOn attempts=RetryCount error=Error created=OccurredOn rows=?
CREATE TABLE "OutboxRecords" (
    "Id" uuid NOT NULL PRIMARY KEY,
    "Type" varchar(500) NOT NULL,
    "Content" jsonb NOT NULL,
    "OccurredOn" timestamptz NOT NULL,
    "Sent" boolean NOT NULL,
    "SentOn" timestamptz,
    "RetryCount" integer NOT NULL,
    "Error" varchar(2000),
    "ModifiedAt" timestamptz NOT NULL,
    "CorrelationId" uuid NOT NULL,
    "IsDeleted" boolean NOT NULL,
    "TenantId" uuid NOT NULL);
