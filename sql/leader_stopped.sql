-- Writes down the last position that a clean stop confirmed.
UPDATE outbox_cdc.leader SET stopped = $3::text::pg_lsn WHERE stream = $1 AND epoch = $2
