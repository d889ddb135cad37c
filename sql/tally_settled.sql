-- Removes the entries of rows left. $1 is the stream, $2 the clusters, $3 the units, $4 the rows' numbers within
-- the unit.
DELETE FROM outbox_cdc.tally_left l USING unnest($2::text[], $3::bigint[], $4::integer[]) AS s(cluster, unit, entry)
WHERE l.stream = $1 AND l.cluster = s.cluster AND l.unit = s.unit AND l.entry = s.entry
