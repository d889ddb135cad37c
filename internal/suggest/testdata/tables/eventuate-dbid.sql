-- from: eventuate-foundation/eventuate-common, the variant with ids of the database
-- want: refused
CREATE TABLE message (
    dbid BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id VARCHAR(1000),
    destination TEXT NOT NULL,
    headers TEXT NOT NULL,
    payload TEXT NOT NULL,
    published SMALLINT DEFAULT 0,
    message_partition SMALLINT,
    creation_time BIGINT);
CREATE INDEX ON message (published, dbid);
