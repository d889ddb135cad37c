-- Of the units that tally_note.sql has just noted: how many have a tally, how many its head has not passed (one that it
-- has passed was noted before), and how far the last is ahead of the head. It is a second statement because the first
-- may not see a move of the head, which removed the number of a unit.
SELECT count(*), count(*) FILTER (WHERE t.unit < u.unit), coalesce(max(u.unit - t.unit), 0)
FROM unnest($2::text[], $3::bigint[]) AS u(cluster, unit)
JOIN outbox_cdc.tally t ON t.stream = $1 AND t.cluster = u.cluster
