-- from: rebus-org/Rebus.PostgreSql PostgreSqlOutboxStorage.cs
-- want: id=Id topic=?DestinationAddress key=- payload=Body published=delete
CREATE TABLE "RebusOutbox" (
    "Id" BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    "CorrelationId" VARCHAR(16),
    "MessageId" VARCHAR(255),
    "SourceQueue" VARCHAR(255),
    "DestinationAddress" VARCHAR(255) NOT NULL,
    "Headers" TEXT,
    "Body" BYTEA,
    "Sent" BOOLEAN DEFAULT FALSE);
