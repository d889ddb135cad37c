-- Pauses stream $1 ($2 empty) or one of its tables. An existing pause is not changed. The leader reads the
-- pauses.
INSERT INTO outbox_cdc.leader AS l (stream, paused)
VALUES ($1, jsonb_build_object($2::text, jsonb_build_object('since', now(), 'by', $3::text)))
ON CONFLICT (stream) DO UPDATE SET paused = excluded.paused || l.paused
