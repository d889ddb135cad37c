-- Returns what the role of this session is and may do, as one JSON document. $1 are the outbox tables, a JSON
-- array of [schema, name].
SELECT jsonb_build_object(
    'user', r.rolname, 'superuser', r.rolsuper, 'replication', r.rolreplication, 'bypassrls', r.rolbypassrls,
    'createrole', r.rolcreaterole, 'createdb', r.rolcreatedb, 'connection_limit', r.rolconnlimit,
    'reads_all', pg_has_role(r.oid, 'pg_read_all_data', 'USAGE'),
    'writes_all', pg_has_role(r.oid, 'pg_write_all_data', 'USAGE'),
    'schema', (SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'outbox_cdc'),
    'lacking', (SELECT coalesce(jsonb_agg(c.relname || ': ' || p.privilege ORDER BY c.relname, p.privilege), '[]')
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p(privilege)
        WHERE n.nspname = 'outbox_cdc' AND c.relname IN ('leader', 'park') AND NOT has_table_privilege(c.oid, p.privilege)),
    'ours', (SELECT coalesce(jsonb_agg(c.relname ORDER BY c.relname), '[]')
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'outbox_cdc' AND c.relname IN ('leader', 'park')),
    'tally', (SELECT coalesce(jsonb_agg(c.relname ORDER BY c.relname), '[]')
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'outbox_cdc' AND c.relname IN ('tally', 'tally_unit', 'tally_left')),
    'tally_lacking', (SELECT coalesce(jsonb_agg(c.relname || ': ' || p.privilege ORDER BY c.relname, p.privilege), '[]')
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p(privilege)
        WHERE n.nspname = 'outbox_cdc' AND c.relname IN ('tally', 'tally_unit', 'tally_left') AND NOT has_table_privilege(c.oid, p.privilege)),
    'tables', (SELECT coalesce(jsonb_agg(DISTINCT w.t->>0 || '.' || (w.t->>1)), '[]')
        FROM jsonb_array_elements($1::jsonb) w(t)
        JOIN pg_class c ON c.relname = w.t->>1 JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = w.t->>0
        WHERE has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE') OR has_table_privilege(c.oid, 'DELETE, TRUNCATE'))
)::text
FROM pg_roles r WHERE r.rolname = current_user
