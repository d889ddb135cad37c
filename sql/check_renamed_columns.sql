-- Returns the columns of a table that no longer exist under their mapped names, if the stream remembers their
-- numbers. $1 is the stream, $2 schema.table as configured. Each row has the name that the stream knows and the
-- present name; an empty one means that the column was dropped. Numbers are stored under the key 'column of ',
-- the table's name, a new line and the column's name.
SELECT k.name, coalesce(a.attname::text, '')
FROM outbox_cdc.leader l
JOIN pg_catalog.pg_class c ON c.oid = (l.relations ->> $2::text)::oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname || '.' || c.relname = $2::text
CROSS JOIN LATERAL (
    SELECT substr(r.key, length('column of ' || $2::text || E'\n') + 1) AS name, r.value::integer AS number
    FROM jsonb_each_text(l.relations) r WHERE starts_with(r.key, 'column of ' || $2::text || E'\n')
) k
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number AND NOT a.attisdropped
WHERE l.stream = $1 AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute o WHERE o.attrelid = c.oid AND o.attname::text = k.name)
