-- from: dotnetcore/CAP IStorageInitializer.PostgreSql.cs
-- want: profile=cap
CREATE TABLE "published" (
    "Id" BIGINT PRIMARY KEY NOT NULL,
    "Version" VARCHAR(20) NOT NULL,
    "Name" VARCHAR(200) NOT NULL,
    "Content" TEXT NULL,
    "Retries" INT NOT NULL,
    "Added" TIMESTAMP NOT NULL,
    "ExpiresAt" TIMESTAMP NULL,
    "StatusName" VARCHAR(50) NOT NULL);
