-- Returns the facts for proposing a mapping, as one JSON document; no row: the table does not exist. $1 is the
-- schema, $2 the name. Texts that the table's owner chose are cut.
SELECT jsonb_build_object(
    'kind', c.relkind, 'row_security', row_security_active(c.oid),
    'columns', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(b.type, NULL), 'oid', b.type::int8, 'enum', t.typtype = 'e',
            'chars', CASE WHEN b.type IN (1042, 1043) AND b.typmod > 4 THEN b.typmod - 4 ELSE 0 END,
            'not_null', a.attnotnull, 'generated', a.attgenerated <> '', 'identity', a.attidentity <> '',
            'default', left(coalesce(pg_get_expr(d.adbin, d.adrelid), ''), 200), 'readable', has_column_privilege(c.oid, a.attnum, 'SELECT'),
            'labels', (SELECT coalesce(jsonb_agg(e.enumlabel ORDER BY e.enumsortorder), '[]')
                FROM (SELECT * FROM pg_enum WHERE enumtypid = b.type ORDER BY enumsortorder LIMIT 50) e)) ORDER BY a.attnum), '[]')
        FROM pg_attribute a
        CROSS JOIN LATERAL (
            WITH RECURSIVE base AS (
                SELECT a.atttypid AS type, a.atttypmod AS typmod
              UNION ALL
                SELECT y.typbasetype, y.typtypmod FROM base JOIN pg_type y ON y.oid = base.type WHERE y.typtype = 'd')
            SELECT base.* FROM base JOIN pg_type y ON y.oid = base.type WHERE y.typtype <> 'd') b
        JOIN pg_type t ON t.oid = b.type
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    -- Unique indexes; that of the primary key comes first.
    'unique', (SELECT coalesce(jsonb_agg((SELECT jsonb_agg(a.attname ORDER BY k.n) FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, n)
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum WHERE k.n <= i.indnkeyatts) ORDER BY i.indisprimary DESC, i.indexrelid), '[]')
        FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL),
    -- The conditions of partial indexes.
    'partial', (SELECT coalesce(jsonb_agg(left(pg_get_expr(i.indpred, i.indrelid), 400) ORDER BY i.indexrelid), '[]')
        FROM (SELECT * FROM pg_index WHERE indrelid = c.oid AND indpred IS NOT NULL ORDER BY indexrelid LIMIT 20) i),
    -- Constraints on a single column.
    'checks', (SELECT coalesce(jsonb_agg(jsonb_build_object('column', a.attname, 'definition', left(pg_get_constraintdef(k.oid), 4000))), '[]')
        FROM (SELECT * FROM pg_constraint WHERE conrelid = c.oid AND contype = 'c' AND cardinality(conkey) = 1 ORDER BY oid LIMIT 100) k
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.conkey[1])
)::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
