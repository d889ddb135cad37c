-- Returns the sessions of a stream's processes that do not hold its leadership lock, and so wait for it. $1 is
-- the lock's key. $2 is the beginning of their application_name, which the server cuts at 63 bytes. The columns
-- are those of lock_holder.sql. Addresses and times of other roles' sessions are shown only to members of
-- pg_monitor.
SELECT a.pid::text, a.application_name, coalesce(host(a.client_addr), ''), coalesce(to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), ''),
    coalesce(a.usename::text, ''), 'false'
FROM pg_stat_activity a
WHERE a.datname = current_database() AND starts_with(a.application_name, left($2::text, 63))
    AND NOT EXISTS (SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid = a.pid
            AND l.classid::bigint = (($1::bigint >> 32) & 4294967295) AND l.objid::bigint = ($1::bigint & 4294967295))
ORDER BY a.application_name, a.pid
LIMIT 20
