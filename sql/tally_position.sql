-- Notes up to where the rows of tables without state are settled: $3 the last unit, $4 its
-- offset, $5 the position. $6 is the leader's lock: where nobody holds it, this is another
-- server than the one that the position is of, and nothing is written.
UPDATE outbox_cdc.tally SET unit = $3, place = $4, lsn = greatest(lsn, $5::text::pg_lsn)
WHERE stream = $1 AND cluster = $2 AND unit <= $3 AND NOT pg_try_advisory_xact_lock_shared($6::bigint)
