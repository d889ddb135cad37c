-- Checks the units that tally_note.sql has just noted. It returns how many have a tally, how many the head has
-- not passed (a unit that the head has passed was noted before), and how far the last one is ahead of the head.
-- It is a second statement because the first one may not see that the head moved and removed a unit's number.
SELECT count(*), count(*) FILTER (WHERE t.unit < u.unit), coalesce(max(u.unit - t.unit), 0)
FROM unnest($2::text[], $3::bigint[]) AS u(cluster, unit)
JOIN outbox_cdc.tally t ON t.stream = $1 AND t.cluster = u.cluster
