-- Returns the load that others bear, as one JSON document: the end of the WAL; standbys with the bytes that they
-- still have to replay; how many more standbys hide that from this role; and how many sessions have waited for a
-- while for our locks.
--
-- pg_stat_replication shows the standbys of other roles only to members of pg_read_all_stats. Everybody may see
-- locks and application names.
-- https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-REPLICATION-VIEW
WITH ours AS (
    SELECT coalesce(array_agg(pid), '{}') AS pids FROM pg_stat_activity
    WHERE application_name = current_setting('application_name')
        AND usesysid = (SELECT oid FROM pg_roles WHERE rolname = session_user)
), standby AS (
    SELECT r.pid, r.state, coalesce(nullif(r.application_name, ''), host(r.client_addr), r.pid::text) AS name,
        coalesce(r.replay_lsn, r.flush_lsn, r.write_lsn, r.sent_lsn) AS at
    FROM pg_stat_replication r
    WHERE NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
        AND coalesce(r.application_name, '') NOT LIKE 'outbox-cdc/%'
), waiting AS (
    SELECT DISTINCT l.pid FROM pg_locks l, ours
    WHERE NOT l.granted AND l.waitstart < clock_timestamp() - interval '250 milliseconds' AND l.pid <> ALL (ours.pids)
    LIMIT 20
)
SELECT jsonb_build_object(
    'insert', pg_current_wal_insert_lsn(),
    'standbys', (SELECT coalesce(jsonb_agg(jsonb_build_object('pid', pid, 'name', name,
            'lag', greatest(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), at), 0)) ORDER BY pid), '[]')
        FROM standby WHERE state IN ('streaming', 'catchup')),
    'hidden', (SELECT count(*) FROM standby WHERE state IS NULL),
    'waiting', (SELECT count(*) FROM waiting, ours WHERE pg_blocking_pids(waiting.pid) && ours.pids)
)::text
