-- Notes that everything that the leader of an epoch ($2) published is marked: it stops. $3 is what it leaves
-- to the next one, which the next claim removes.
UPDATE outbox_cdc.leader SET claim = claim || jsonb_build_object('clean', true, 'fences', $3::text::jsonb)
WHERE stream = $1 AND epoch = $2 AND (claim->>'epoch')::bigint = $2
