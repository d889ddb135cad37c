-- Notes that everything that the leader of an epoch ($2) published is marked: it stops.
UPDATE outbox_cdc.leader SET claim = claim || '{"clean": true}'
WHERE stream = $1 AND epoch = $2 AND (claim->>'epoch')::bigint = $2
