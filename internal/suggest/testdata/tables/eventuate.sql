-- from: eventuate-foundation/eventuate-common 3.create-message-table.sql
-- want: profile=eventuate
CREATE TABLE message (
    id VARCHAR(255) PRIMARY KEY,
    destination TEXT NOT NULL,
    headers TEXT NOT NULL,
    payload TEXT NOT NULL,
    published SMALLINT DEFAULT 0,
    message_partition SMALLINT,
    creation_time BIGINT);
CREATE INDEX ON message (published, id);
