-- Pauses a stream ($2 empty) or one of its tables; what is paused already stays as it is. The leader reads it.
INSERT INTO outbox_cdc.leader AS l (stream, paused)
VALUES ($1, jsonb_build_object($2::text, jsonb_build_object('since', now(), 'by', $3::text)))
ON CONFLICT (stream) DO UPDATE SET paused = excluded.paused || l.paused
