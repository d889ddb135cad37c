-- Returns what the server is, and its WAL position. The snapshot is taken before the position is read.
SELECT current_setting('server_version_num'), current_setting('wal_level'), pg_is_in_recovery()::text,
    pg_current_snapshot()::text, current_database(),
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
    current_user, EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'outbox_cdc' AND c.relname = 'leader')::text,
    current_setting('synchronous_standby_names'),
    EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'outbox_cdc' AND c.relname = 'tally')::text,
    coalesce(current_setting('effective_wal_level', true), ''), -- from 19 on
    -- Exists from 19 and the minor releases of August 2026 on; hidden from roles that may not read all settings.
    coalesce(CASE WHEN pg_has_role('pg_read_all_settings', 'USAGE') THEN current_setting('output_plugin_libraries', true) END, 'pgoutput')
