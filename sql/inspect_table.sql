-- One table, and how a publication covers it. to_jsonb, since columns and row
-- filters of publications came with version 15.
SELECT c.oid::text, c.relkind::text, c.relpersistence::text, c.relispartition::text,
    coalesce((SELECT a.relid::regclass::text FROM pg_partition_ancestors(c.oid) WITH ORDINALITY a(relid, n)
              WHERE a.relid <> c.oid ORDER BY a.n DESC LIMIT 1), ''),
    (t.tablename IS NOT NULL)::text,
    (SELECT count(*) FROM pg_partition_tree(c.oid) l
       JOIN pg_class lc ON lc.oid = l.relid
       JOIN pg_namespace ln ON ln.oid = lc.relnamespace
       JOIN pg_publication_tables lt ON lt.pubname = $3 AND lt.schemaname = ln.nspname AND lt.tablename = lc.relname
      WHERE l.isleaf AND l.relid <> c.oid)::text,
    coalesce((SELECT string_agg(x, E'\n') FROM jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(to_jsonb(t)->'attnames') = 'array' THEN to_jsonb(t)->'attnames' ELSE '[]' END) x), ''),
    coalesce(to_jsonb(t)->>'rowfilter', '')
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication_tables t ON t.pubname = $3 AND t.schemaname = n.nspname AND t.tablename = c.relname
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
