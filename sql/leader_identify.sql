-- Stores which slot of which server the stream streams from.
UPDATE outbox_cdc.leader
SET slot = $3, system_id = $4, timeline = $5, slot_point = $6::text::pg_lsn, stopped = $7::text::pg_lsn, publication = $8
WHERE stream = $1 AND epoch = $2
