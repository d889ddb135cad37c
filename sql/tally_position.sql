-- Notes the position up to which rows of tables without state are settled. $1 is the stream, $2 the cluster, $3
-- the last unit, $4 its offset, $5 the position, $6 its slot (see statestore.Server). $7 is the leader's lock:
-- if nobody holds it, this is another server, and nothing is written.
UPDATE outbox_cdc.tally SET unit = $3, place = $4, slot = $6,
    lsn = CASE WHEN slot = $6 THEN greatest(lsn, $5::text::pg_lsn) ELSE $5::text::pg_lsn END
WHERE stream = $1 AND cluster = $2 AND unit <= $3 AND NOT pg_try_advisory_xact_lock_shared($7::bigint)
