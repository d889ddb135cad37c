-- Returns whether tables fit their mappings, apart from the columns' types. The result is one JSON object that
-- has the existing tables by their position in $1. $1 is a JSON array of [schema, name, status column or null,
-- schema and name of the archive or null].
SELECT coalesce(jsonb_object_agg(w.place, jsonb_build_object(
    'row_security', c.relrowsecurity, 'rows_hidden', row_security_active(c.oid),
    'policies', (SELECT coalesce(jsonb_agg(p.polname ORDER BY p.polname), '[]') FROM pg_policy p WHERE p.polrelid = c.oid),
    'key', (SELECT coalesce(jsonb_agg(a.attname ORDER BY array_position(i.indkey::int2[], a.attnum)), '[]')
        FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[]) WHERE i.indrelid = c.oid AND i.indisprimary),
    'columns', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
            'not_null', a.attnotnull) ORDER BY a.attnum), '[]')
        FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    -- The values that the status may have: the labels of its enum, the constraints on it alone.
    'status_labels', (SELECT coalesce(jsonb_agg(e.enumlabel ORDER BY e.enumsortorder), '[]')
        FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid WHERE a.attrelid = c.oid AND a.attname = w.t->>2),
    'status_constraints', (SELECT coalesce(jsonb_agg(pg_get_constraintdef(k.oid)), '[]')
        FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = w.t->>2
        WHERE k.conrelid = c.oid AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum]),
    -- The same for the archive.
    'archive_constraints', (SELECT coalesce(jsonb_agg(pg_get_constraintdef(k.oid)), '[]')
        FROM pg_namespace o JOIN pg_class r ON r.relnamespace = o.oid JOIN pg_attribute a ON a.attrelid = r.oid JOIN pg_constraint k ON k.conrelid = r.oid
        WHERE o.nspname = w.t->>3 AND r.relname = w.t->>4 AND a.attname = w.t->>2 AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum])
)), '{}')::text
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY w(t, place)
JOIN pg_namespace n ON n.nspname = w.t->>0
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t->>1 AND c.relkind IN ('r', 'p')
