-- Returns what a leader reads every few seconds: how much WAL slot $1 holds back, how much room is left and, if
-- the slot is lost, by which limit; the parts of publicationMark for publication $2, where a table that is
-- excluded from all tables (EXCEPT, from 19 on) has a '!'; and the OID of each table in $3, a JSON array of
-- [schema, name]. The OID is 0 if there is no such table, if it is unlogged, or if other tables inherit from it.
-- It changes with a swap by rename, a new schema of the same name, and a table that was created again.
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
    coalesce(s.restart_lsn, '0/0')::text, coalesce(s.confirmed_flush_lsn, '0/0')::text,
    coalesce(s.wal_status, ''), coalesce(s.safe_wal_size, -1)::text, coalesce(s.active, false)::text,
    coalesce(p.oid::text, ''), coalesce(p.xmin::text, ''),
    coalesce((SELECT string_agg(CASE WHEN to_jsonb(r)->>'prexcept' = 'true' THEN '!' ELSE '' END || r.oid || '=' || r.prrelid, ' ' ORDER BY r.oid) FROM pg_publication_rel r WHERE r.prpubid = p.oid), ''),
    coalesce((SELECT string_agg(CASE WHEN c.relpersistence = 'p' AND NOT (c.relkind = 'r' AND c.relhassubclass AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)) THEN c.oid ELSE 0 END::text, ' ' ORDER BY w.place)
        FROM jsonb_array_elements($3::jsonb) WITH ORDINALITY w(t, place)
        LEFT JOIN pg_namespace n ON n.nspname = w.t->>0
        LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t->>1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')), ''),
    coalesce(to_jsonb(s)->>'invalidation_reason', ''), current_setting('max_slot_wal_keep_size'), coalesce(current_setting('idle_replication_slot_timeout', true), '')
FROM (SELECT 1) one
LEFT JOIN pg_replication_slots s ON s.slot_name = $1
LEFT JOIN pg_publication p ON p.pubname = $2
