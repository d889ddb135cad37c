-- How much WAL a slot holds back, and how much room is left.
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
    coalesce(s.restart_lsn, '0/0')::text, coalesce(s.confirmed_flush_lsn, '0/0')::text,
    coalesce(s.wal_status, ''), coalesce(s.safe_wal_size, -1)::text, coalesce(s.active, false)::text
FROM (SELECT 1) one LEFT JOIN pg_replication_slots s ON s.slot_name = $1
