-- Notes that a slot is made for a stream, and that nothing has gone through it yet.
INSERT INTO outbox_cdc.leader (stream, slot) VALUES ($1, $2)
ON CONFLICT (stream) DO UPDATE
    SET slot = excluded.slot, system_id = '', timeline = 0, slot_point = '0/0', stopped = '0/0'
