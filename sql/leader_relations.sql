-- Stores which relations the stream's tables are. The column is younger than the table: init adds it.
UPDATE outbox_cdc.leader SET relations = $3::text::jsonb WHERE stream = $1 AND epoch = $2
