-- Returns who holds the leadership lock. classid and objid are the halves of the lock's key. A holder is foreign
-- if it neither streams (which needs REPLICATION) nor may write outbox_cdc.leader.
SELECT l.pid::text, coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''), coalesce(to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), ''),
    coalesce(a.usename::text, ''),
    (a.usename IS NOT NULL AND a.usename <> session_user
        AND NOT EXISTS (SELECT FROM pg_stat_get_wal_senders() w WHERE w.pid = l.pid)
        AND NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'outbox_cdc' AND c.relname = 'leader' AND has_table_privilege(a.usesysid, c.oid, 'UPDATE')))::text
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid::bigint = (($1::bigint >> 32) & 4294967295) AND l.objid::bigint = ($1::bigint & 4294967295)
LIMIT 1
