-- Returns every replication slot of the cluster with the program that reads it, whichever columns this version's
-- view has.
SELECT s.slot_name, s.slot_type, coalesce(s.plugin, ''), coalesce(s.database, ''), s.temporary, s.active, coalesce(s.active_pid, 0),
    coalesce(a.application_name, ''), coalesce(a.usename, ''), coalesce(host(a.client_addr), ''),
    coalesce(s.restart_lsn, '0/0')::text, coalesce(s.wal_status, ''), s.safe_wal_size,
    coalesce(j.v->>'invalidation_reason', CASE WHEN j.v->>'conflicting' = 'true' THEN 'conflict with recovery' END, ''),
    coalesce(j.v->>'inactive_since', ''), (j.v->>'failover')::boolean, (j.v->>'synced')::boolean,
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text
FROM pg_replication_slots s
CROSS JOIN LATERAL (SELECT to_jsonb(s) AS v) j
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
ORDER BY s.slot_name
