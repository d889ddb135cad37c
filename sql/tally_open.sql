-- Makes the tally of a stream ($1) and cluster ($3) for the leader of an epoch ($2), or opens
-- a closed one of the same journal ($4) again. $5 are the tables of the stream's claim. An open
-- tally keeps those that it was opened with until it is recovered ($6): until then rows of a table
-- that was taken out may be published and not marked.
-- Returns 1 where the epoch is the current one.
WITH guard AS MATERIALIZED (
    SELECT 1 AS current FROM outbox_cdc.leader WHERE stream = $1 AND epoch = $2 FOR SHARE
), opened AS (
    INSERT INTO outbox_cdc.tally AS t (stream, cluster, journal, tables)
    SELECT $1, $3, $4, $5::text::jsonb FROM guard
    ON CONFLICT (stream, cluster) DO UPDATE SET closed = false, tables = excluded.tables
        WHERE t.journal = excluded.journal AND (t.closed OR $6::boolean AND t.tables <> excluded.tables)
)
SELECT count(*) FROM guard
