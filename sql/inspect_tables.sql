-- Returns which of the tables in $1 exist, and how a publication covers them. $1 is a JSON array of [schema,
-- name]; the result has their positions in it. WithPublished puts "published" before this statement. No
-- partition is opened, so a locked partition delays nothing.
SELECT w.place::text, c.relkind::text, c.relpersistence::text,
    coalesce((SELECT a.relid::regclass::text FROM pg_partition_ancestors(c.oid) WITH ORDINALITY a(relid, n)
              WHERE a.relid <> c.oid ORDER BY a.n DESC LIMIT 1), ''),
    (t.relid IS NOT NULL)::text,
    (WITH RECURSIVE tree AS (
        SELECT i.inhrelid FROM pg_inherits i WHERE c.relkind = 'p' AND i.inhparent = c.oid AND NOT i.inhdetachpending
        UNION ALL
        SELECT i.inhrelid FROM tree JOIN pg_class k ON k.oid = tree.inhrelid AND k.relkind = 'p'
            JOIN pg_inherits i ON i.inhparent = k.oid AND NOT i.inhdetachpending
     )
     SELECT count(*) FROM tree l JOIN pg_class k ON k.oid = l.inhrelid AND k.relkind <> 'p'
     WHERE EXISTS (SELECT FROM published lt WHERE lt.relid = l.inhrelid AND lt.pubname = $2))::text,
    coalesce((SELECT string_agg(x, E'\n') FROM jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(t.attnames) = 'array' THEN t.attnames ELSE '[]' END) x), ''),
    coalesce(t.rowfilter, ''), c.oid::text,
    coalesce((SELECT jsonb_object_agg(a.attname, CASE WHEN a.attcollation < 16384 THEN a.atttypid::bigint ELSE 0 END) FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''), '{}')::text,
    -- Tables that inherit from it without being partitions.
    coalesce((SELECT string_agg(i.inhrelid::regclass::text, ', ' ORDER BY i.inhrelid::regclass::text)
        FROM (SELECT * FROM pg_inherits WHERE c.relkind = 'r' AND inhparent = c.oid ORDER BY inhrelid LIMIT 5) i), ''),
    -- Generated columns, and whether they are STORED.
    coalesce((SELECT jsonb_object_agg(a.attname, a.attgenerated = 's') FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> '')::text, ''),
    (SELECT coalesce(jsonb_object_agg(a.attname, a.attnum), '{}') FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)::text
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY w(t, place)
JOIN pg_namespace n ON n.nspname = w.t->>0
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t->>1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
LEFT JOIN LATERAL (SELECT p.* FROM published p WHERE p.relid = c.oid AND p.pubname = $2 OFFSET 0) t ON true
