-- Who leads a stream, as the database remembers.
SELECT epoch, holder, since FROM outbox_cdc.leader WHERE stream = $1
