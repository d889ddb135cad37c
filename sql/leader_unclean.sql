-- Returns leaderships over tables of a claim ($1) that ended before all rows they published were marked: the
-- stream, a table, its delivery, and its transactional ids by Kafka cluster. Claims of an earlier version have
-- no delivery and are left out.
WITH mine AS (
    SELECT t->>'name' AS name, (t->>'part')::int AS part, (t->>'of')::int AS parts, t->>'by' AS split
    FROM jsonb_array_elements($1::text::jsonb->'tables') t
)
SELECT l.stream, min(m.name), l.claim->>'delivery', coalesce(l.claim->'ids', '{}')
FROM outbox_cdc.leader l
CROSS JOIN jsonb_array_elements(coalesce(l.claim->'tables', '[]')) t
JOIN mine m ON m.name = t->>'name'
WHERE l.claim ? 'delivery' AND NOT l.claim ? 'clean'
    AND NOT (m.parts > 0 AND m.parts = (t->>'of')::int AND m.split = t->>'by' AND m.part <> (t->>'part')::int)
GROUP BY l.stream, l.claim
ORDER BY l.stream
