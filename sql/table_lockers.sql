-- Returns who keeps others from reading tables: every transaction, also a prepared one, that holds an ACCESS
-- EXCLUSIVE lock on a table or on a partition of it. If no transaction holds one, it returns the one that has
-- waited longest for such a lock: all others wait behind it. $1 are the tables, a JSON array of [schema, name].
-- The columns are those of slot_blockers.sql, and the table's position. The partitions are read from the
-- catalogue: pg_partition_tree would open them, and so wait for locks.
SELECT b.*, w.place::text
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY w(t, place)
CROSS JOIN LATERAL (
    WITH RECURSIVE tree AS (
        SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = w.t->>0 AND c.relname = w.t->>1
      UNION ALL
        SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending
    ), lockers AS (
        SELECT l.pid, l.virtualtransaction, rank() OVER (ORDER BY l.granted DESC, l.waitstart) AS place
        FROM tree JOIN pg_locks l ON l.relation = tree.oid
        WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    )
    SELECT DISTINCT coalesce(l.pid, 0)::text, current_database(), coalesce(a.usename, p.owner, ''), coalesce(a.application_name, ''),
        CASE WHEN l.pid IS NULL THEN 'prepared' ELSE coalesce(a.state, '') END,
        coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::bigint, 0)::text, coalesce(p.gid, '')
    FROM lockers l
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
        AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock'
    LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
    WHERE l.place = 1
    LIMIT 20
) b
