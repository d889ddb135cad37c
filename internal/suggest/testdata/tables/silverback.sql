-- from: BEagle1984/silverback SilverbackStorageInitializerPostgreSqlExtensions.Outbox.cs
-- want: id=Id topic=? key=? payload=Content published=delete created=Created
CREATE TABLE "SilverbackOutbox" (
    "Id" SERIAL PRIMARY KEY,
    "Content" BYTEA,
    "Headers" TEXT,
    "EndpointName" TEXT NOT NULL,
    "Created" TIMESTAMP WITH TIME ZONE NOT NULL);
