-- What operators have paused of a stream. The column came later than the table: init adds it.
SELECT key, value->>'by', (value->>'since')::timestamptz
FROM outbox_cdc.leader l, jsonb_each(coalesce(to_jsonb(l)->'paused', '{}'))
WHERE stream = $1
ORDER BY key
