-- One slot, whatever columns this version's view has.
SELECT s.key, s.value
FROM pg_replication_slots v, jsonb_each_text(to_jsonb(v)) s
WHERE v.slot_name = $1
