-- Returns the present name of a table that no longer exists under its configured name, if the stream remembers
-- the table's relation. $1 is the stream, $2 schema.table as configured. No row: the table was dropped, or its
-- new name is unknown. The relation from before is stored under the key 'was ' followed by the name.
SELECT n.nspname::text, c.relname::text
FROM outbox_cdc.leader l
CROSS JOIN LATERAL jsonb_each_text(l.relations) r
JOIN pg_catalog.pg_class c ON c.oid = r.value::oid AND c.relkind IN ('r', 'p')
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE l.stream = $1 AND r.key IN ($2, 'was ' || $2) AND r.value <> '0'
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_class o JOIN pg_catalog.pg_namespace s ON s.oid = o.relnamespace WHERE s.nspname || '.' || o.relname = $2) -- another has its name
