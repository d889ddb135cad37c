-- Returns the facts about the server that a check needs, as one JSON document. Every role may ask; facts that a
-- role may not see are empty. $1 is the slot.
SELECT jsonb_build_object(
    'settings', (SELECT jsonb_object_agg(name, jsonb_build_object('value', setting, 'unit', coalesce(unit, '')))
        FROM pg_settings
        WHERE name IN ('max_replication_slots', 'max_wal_senders', 'max_slot_wal_keep_size', 'wal_sender_timeout', 'idle_replication_slot_timeout',
            'synchronous_commit', 'synchronized_standby_slots', 'track_commit_timestamp', 'max_connections', 'superuser_reserved_connections', 'reserved_connections')),
    'encoding', getdatabaseencoding(),
    'superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
    'slots', (SELECT count(*) FROM pg_replication_slots),
    'idle_slots', (SELECT coalesce(jsonb_agg(s.slot_name ORDER BY s.slot_name), '[]') FROM pg_replication_slots s WHERE NOT s.active AND s.slot_name <> $1),
    'idle_physical_slots', (SELECT coalesce(jsonb_agg(s.slot_name ORDER BY s.slot_name), '[]') FROM pg_replication_slots s WHERE s.slot_type = 'physical' AND NOT s.active),
    'physical_slots', (SELECT coalesce(jsonb_agg(s.slot_name ORDER BY s.slot_name), '[]') FROM pg_replication_slots s WHERE s.slot_type = 'physical'),
    -- Without this session, if it is a walsender.
    'senders', (SELECT count(*) FROM pg_stat_get_wal_senders() w WHERE w.pid <> pg_backend_pid()),
    'standbys', (SELECT count(*) FROM pg_stat_replication r WHERE r.state IS NOT NULL AND r.pid NOT IN
        (SELECT s.active_pid FROM pg_replication_slots s WHERE s.active_pid IS NOT NULL AND s.slot_type = 'logical')),
    'connections', (SELECT sum(numbackends) FROM pg_stat_database),
    'holder', (SELECT trim(concat_ws(' ', 'process', s.active_pid, nullif(a.application_name, ''), a.usename, host(a.client_addr)))
        FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
        WHERE s.slot_name = $1 AND s.active)
)::text
