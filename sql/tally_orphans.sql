-- Returns open tallies over tables of this stream that it does not recover. They belong to clusters of the
-- stream that are no longer configured, or to other streams whose leader is gone or no longer has the table. $1
-- is the stream, $2 its clusters, $3 the tables of its claim, $4 its lock.
WITH mine AS (
    SELECT t->>'name' AS name, (t->>'part')::int AS part, (t->>'of')::int AS parts, t->>'by' AS split
    FROM jsonb_array_elements($3::text::jsonb) t
)
SELECT o.stream, o.cluster, min(m.name)
FROM outbox_cdc.tally o
CROSS JOIN jsonb_array_elements(o.tables) t
JOIN mine m ON m.name = t->>'name'
WHERE NOT o.closed AND NOT (o.stream = $1 AND o.cluster = ANY ($2::text[]))
    AND NOT (m.parts > 0 AND m.parts = (t->>'of')::int AND m.split = t->>'by' AND m.part <> (t->>'part')::int)
    AND (o.stream = $1 OR NOT EXISTS (
        SELECT FROM outbox_cdc.leader l JOIN pg_locks k ON k.locktype = 'advisory' AND k.granted AND k.objsubid = 1 AND k.mode = 'ExclusiveLock'
            AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            AND k.classid::bigint = (((l.claim->>'lock')::bigint >> 32) & 4294967295)
            AND k.objid::bigint = ((l.claim->>'lock')::bigint & 4294967295)
        WHERE l.stream = o.stream AND (l.claim->>'lock')::bigint <> $4::bigint
            AND EXISTS (SELECT FROM jsonb_array_elements(l.claim->'tables') c WHERE c->>'name' = m.name)
    ))
GROUP BY o.stream, o.cluster
ORDER BY o.stream, o.cluster
