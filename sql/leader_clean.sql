-- Notes that the leader of an epoch ($2) stops and that all it published is marked. $3 is what it leaves to
-- the next one; the next claim removes it.
UPDATE outbox_cdc.leader SET claim = claim || jsonb_build_object('clean', true, 'fences', $3::text::jsonb)
WHERE stream = $1 AND epoch = $2 AND (claim->>'epoch')::bigint = $2
