-- from: Particular/NServiceBus.Persistence.Sql
-- want: refused
CREATE TABLE "OutboxData" (
    "MessageId" varchar(200) PRIMARY KEY,
    "Dispatched" boolean,
    "DispatchedAt" timestamp,
    "PersistenceVersion" varchar(23),
    "Operations" jsonb);
