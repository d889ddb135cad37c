-- from: made up: camel case, a count of processing, and headers as bytes
-- want: topic=Topic key=Key payload=Body column=Status pending=Pending sent=Done id=Id attempts=ProcessCount created=CreatedAt
CREATE TABLE "OutboxRecords" (
    "Id" uuid PRIMARY KEY,
    "Topic" text NOT NULL,
    "Key" text NOT NULL,
    "Body" bytea NOT NULL,
    "Headers" bytea,
    "Status" text NOT NULL DEFAULT 'Pending' CHECK ("Status" IN ('Pending', 'Done')),
    "ProcessCount" integer NOT NULL DEFAULT 0,
    "CreatedAt" timestamptz NOT NULL DEFAULT now());
