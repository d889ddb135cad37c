-- from: MassTransit/MassTransit OutboxState.cs
-- want: refused
CREATE TABLE "OutboxState" (
    "OutboxId" uuid PRIMARY KEY,
    "LockId" uuid NOT NULL,
    "RowVersion" bytea,
    "Created" timestamptz NOT NULL,
    "Delivered" timestamptz,
    "LastSequenceNumber" bigint);
