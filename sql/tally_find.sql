-- Locks the entries of rows left in a table. $1 is the stream, $2 the table, $3 the ids as text[].
SELECT u.n, l.cluster, l.unit, l.entry, l.hash, l.horizon::text
FROM unnest($3::text[]) WITH ORDINALITY AS u(id, n)
JOIN outbox_cdc.tally_left l ON l.id = u.id::text[]
WHERE l.stream = $1 AND l."table" = $2
ORDER BY l.cluster, l.unit, l.entry
FOR UPDATE OF l
