-- The streams that this database knows, and their slots.
SELECT stream, slot FROM outbox_cdc.leader ORDER BY stream
