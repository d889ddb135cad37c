-- Of the units that tally_note.sql has just noted: how many have a tally, how many its
-- head has not passed (one that it has passed was noted before), and how far the last is ahead of the head. It is a statement of its own, behind
-- the other: the number may have been removed with the head's move that the other did not see.
SELECT count(*), count(*) FILTER (WHERE t.unit < u.unit), coalesce(max(u.unit - t.unit), 0)
FROM unnest($2::text[], $3::bigint[]) AS u(cluster, unit)
JOIN outbox_cdc.tally t ON t.stream = $1 AND t.cluster = u.cluster
