-- Marks the rows of a unit and notes it, once, with the rows that could not be marked.
-- $1 stream, $2 cluster, $3 unit, $4 its offset, $5 ids and $6 hashes of its names.
-- The statement of the real table comes from its mapping, as marks do; this is its shape.
-- Nothing is returned when the unit was noted before: nothing was changed then.
WITH head AS MATERIALIZED (
    -- A shared lock: while the head moves on, a late unit waits, and then finds itself behind it.
    SELECT unit FROM once.tally WHERE stream = $1 AND cluster = $2 AND unit < $3 FOR SHARE
), noted AS (
    INSERT INTO once.tally_unit SELECT $1, $2, $3, $4 FROM head
    ON CONFLICT DO NOTHING RETURNING unit
), names AS MATERIALIZED (
    SELECT n.id, n.hash FROM noted, unnest($5::text[], $6::bytea[]) AS n(id, hash)
), free AS MATERIALIZED (
    SELECT t.id FROM names JOIN outbox t ON t.id::text = names.id WHERE t.status = 'PENDING' FOR UPDATE OF t SKIP LOCKED
), marked AS (
    UPDATE outbox t SET status = 'SENT' FROM free WHERE t.id = free.id RETURNING t.id::text AS id
), remaining AS (
    -- PENDING and locked, or not there: not visible yet, or gone.
    INSERT INTO once.tally_left
    SELECT $1, $2, $3, 'outbox', names.id, names.hash FROM names LEFT JOIN outbox t ON t.id::text = names.id
    WHERE (t.id IS NULL OR t.status = 'PENDING') AND NOT EXISTS (SELECT FROM marked WHERE marked.id = names.id)
    RETURNING id
)
SELECT (SELECT count(*) FROM marked), (SELECT count(*) FROM remaining) FROM noted
