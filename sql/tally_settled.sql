-- Takes rows off those that are left: $1 stream, $2 clusters, $3 units, $4 their numbers within the unit.
DELETE FROM outbox_cdc.tally_left l USING unnest($2::text[], $3::bigint[], $4::integer[]) AS s(cluster, unit, entry)
WHERE l.stream = $1 AND l.cluster = s.cluster AND l.unit = s.unit AND l.entry = s.entry
