-- Notes units of stream $1. $2 are their clusters, $3 their numbers, $4 their offsets. It returns a row for each
-- unit that was not noted before.
INSERT INTO outbox_cdc.tally_unit (stream, cluster, unit, place)
SELECT $1, u.cluster, u.unit, u.place FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS u(cluster, unit, place)
ORDER BY u.cluster, u.unit
ON CONFLICT DO NOTHING
RETURNING 1
