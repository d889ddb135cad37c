-- Returns the states of the tallies of stream $1. It counts at most $2 of the rows left.
SELECT t.cluster, NOT t.closed, t.unit,
    (SELECT count(*) FROM (SELECT FROM outbox_cdc.tally_left l WHERE l.stream = t.stream AND l.cluster = t.cluster LIMIT $2) counted),
    t.journal
FROM outbox_cdc.tally t WHERE t.stream = $1
ORDER BY t.cluster
