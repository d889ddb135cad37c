-- Who holds the leadership lock: the key's halves are classid and objid.
SELECT l.pid::text, coalesce(a.application_name, ''), coalesce(a.client_addr::text, ''), coalesce(a.backend_start::text, '')
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid::bigint = (($1::bigint >> 32) & 4294967295) AND l.objid::bigint = ($1::bigint & 4294967295)
LIMIT 1
