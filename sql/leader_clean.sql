-- Notes that the leader of epoch $2 has stopped and that all rows it published are marked. $3 is what the next
-- leader inherits. The next claim removes the note.
UPDATE outbox_cdc.leader SET claim = claim || jsonb_build_object('clean', true, 'fences', $3::text::jsonb)
WHERE stream = $1 AND epoch = $2 AND (claim->>'epoch')::bigint = $2
