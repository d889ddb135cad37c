-- Those of some tables that exist, and how a publication covers them. $1 are
-- the tables, a JSON array of [schema, name], of which the place is returned.
-- to_jsonb, since columns and row filters of publications came with version 15.
WITH published AS MATERIALIZED (
    SELECT t.schemaname, t.tablename, to_jsonb(t) AS described FROM pg_publication_tables t WHERE t.pubname = $2
)
SELECT w.place::text, c.relkind::text, c.relpersistence::text,
    coalesce((SELECT a.relid::regclass::text FROM pg_partition_ancestors(c.oid) WITH ORDINALITY a(relid, n)
              WHERE a.relid <> c.oid ORDER BY a.n DESC LIMIT 1), ''),
    (t.tablename IS NOT NULL)::text,
    (SELECT count(*) FROM pg_partition_tree(c.oid) l
       JOIN pg_class lc ON lc.oid = l.relid
       JOIN pg_namespace ln ON ln.oid = lc.relnamespace
       JOIN published lt ON lt.schemaname = ln.nspname AND lt.tablename = lc.relname
      WHERE l.isleaf AND l.relid <> c.oid)::text,
    coalesce((SELECT string_agg(x, E'\n') FROM jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(t.described->'attnames') = 'array' THEN t.described->'attnames' ELSE '[]' END) x), ''),
    coalesce(t.described->>'rowfilter', ''), c.oid::text
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY w(t, place)
JOIN pg_namespace n ON n.nspname = w.t->>0
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t->>1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
LEFT JOIN published t ON t.schemaname = n.nspname AND t.tablename = c.relname
