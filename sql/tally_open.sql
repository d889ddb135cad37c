-- Makes the tally of stream $1 and cluster $3 for the leader of epoch $2, or opens a closed tally of the same
-- journal ($4) again. $5 are the tables of the stream's claim. An open tally keeps the tables that it was opened
-- with until it is recovered ($6): until then, rows of a table that was taken out may be published and not
-- marked. Nothing is opened while another open tally has the journal: in that case two names lead to one Kafka
-- cluster, and their units would mix. leader_serial.sql runs before. It returns 1 if the epoch is the current
-- one, and the stream and cluster that have the journal.
WITH guard AS MATERIALIZED (
    SELECT 1 AS current FROM outbox_cdc.leader WHERE stream = $1 AND epoch = $2 FOR SHARE
), other AS MATERIALIZED (
    SELECT stream, cluster FROM outbox_cdc.tally
    WHERE journal = $4 AND NOT closed AND (stream, cluster) <> ($1, $3) ORDER BY stream, cluster LIMIT 1
), opened AS (
    INSERT INTO outbox_cdc.tally AS t (stream, cluster, journal, tables)
    SELECT $1, $3, $4, $5::text::jsonb FROM guard WHERE NOT EXISTS (SELECT FROM other)
    ON CONFLICT (stream, cluster) DO UPDATE SET closed = false, tables = excluded.tables
        WHERE t.journal = excluded.journal AND (t.closed OR $6::boolean AND t.tables <> excluded.tables)
)
SELECT (SELECT count(*) FROM guard), coalesce((SELECT stream FROM other), ''), coalesce((SELECT cluster FROM other), '')
