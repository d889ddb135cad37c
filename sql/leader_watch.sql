-- Returns the epoch of a stream's last leadership, in one row for each pause of the stream, or in one row
-- without a key if there is no pause. No row: the stream was never led. The column "paused" is younger than the
-- table: init adds it.
SELECT l.epoch, p.key, coalesce(p.value->>'by', ''), (p.value->>'since')::timestamptz
FROM outbox_cdc.leader l LEFT JOIN jsonb_each(coalesce(to_jsonb(l)->'paused', '{}')) p ON true
WHERE l.stream = $1
ORDER BY p.key
