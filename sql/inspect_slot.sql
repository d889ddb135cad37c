-- Returns one slot, whichever columns this version's view has, and the limits by which the server may invalidate
-- it.
SELECT s.key, s.value
FROM pg_replication_slots v, jsonb_each_text(to_jsonb(v) || jsonb_build_object('max_slot_wal_keep_size', current_setting('max_slot_wal_keep_size'),
    'idle_replication_slot_timeout', current_setting('idle_replication_slot_timeout', true))) s
WHERE v.slot_name = $1
