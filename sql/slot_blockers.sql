-- Returns the transactions that making a slot waits for, oldest first: every open transaction with a transaction
-- id and every prepared one, in any database. It reads pg_locks, because pg_stat_activity hides the ids of other
-- roles' transactions from an ordinary role.
SELECT l.pid::text, coalesce(a.datname, ''), coalesce(a.usename, ''), coalesce(a.application_name, ''),
    coalesce(a.state, ''), coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, 0)::text AS seconds,
    '' AS gid, age(l.transactionid) AS age
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND l.pid IS NOT NULL AND l.pid <> pg_backend_pid()
UNION ALL
SELECT '0', p.database, p.owner, '', 'prepared',
    extract(epoch FROM clock_timestamp() - p.prepared)::bigint::text, p.gid, age(p.transaction)
FROM pg_prepared_xacts p
ORDER BY age DESC
LIMIT 20
