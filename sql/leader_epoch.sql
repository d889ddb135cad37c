-- The epoch of a stream's last leadership; 0: none is noted.
SELECT coalesce(max(epoch), 0) FROM outbox_cdc.leader WHERE stream = $1
