-- Returns the positions up to which rows of tables without state are settled, by the tallies of stream $1 on
-- clusters $2. It first raises them to $5, to which the slot was confirmed, because a crash of the server may
-- move the slot back. A position is valid for its own slot ($3, see statestore.Server), up to the end of the
-- server's WAL ($4). Any other position comes from a restored dump, or from another slot of the stream, and is
-- removed before rows can pass it. $6 is the leader's lock: if nobody holds it, this is not the server whose WAL
-- is read, and there are no rows.
UPDATE outbox_cdc.tally SET slot = $3,
    lsn = greatest(CASE WHEN slot = $3 AND lsn <= $4::text::pg_lsn THEN lsn ELSE '0/0' END, $5::text::pg_lsn)
WHERE stream = $1 AND cluster = ANY ($2::text[]) AND NOT pg_try_advisory_xact_lock_shared($6::bigint)
RETURNING cluster, unit, lsn::text
