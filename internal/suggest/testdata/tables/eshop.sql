-- from: dotnet/eShop IntegrationEventLog
-- want: id=EventId topic=? key=- payload=Content column=State pending=0 processing=1 sent=2 failed=3 attempts=TimesSent created=CreationTime
CREATE TABLE "IntegrationEventLog" (
    "EventId" uuid PRIMARY KEY,
    "EventTypeName" text NOT NULL,
    "State" integer NOT NULL,
    "TimesSent" integer NOT NULL,
    "CreationTime" timestamptz NOT NULL,
    "Content" text NOT NULL,
    "TransactionId" uuid NOT NULL);
