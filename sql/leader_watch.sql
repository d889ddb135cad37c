-- The epoch of a stream's last leadership, and a row for each thing that operators have
-- paused of the stream, or one without a key. No row: none has led. The column paused came
-- later than the table: init adds it.
SELECT l.epoch, p.key, coalesce(p.value->>'by', ''), (p.value->>'since')::timestamptz
FROM outbox_cdc.leader l LEFT JOIN jsonb_each(coalesce(to_jsonb(l)->'paused', '{}')) p ON true
WHERE l.stream = $1
ORDER BY p.key
