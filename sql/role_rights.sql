-- Returns rights that the role of this session has and does not need: it is a superuser, or it owns outbox
-- tables ($1, a JSON array of [schema, name]).
SELECT current_user::text, r.rolsuper::text,
    coalesce((SELECT string_agg(n.nspname || '.' || c.relname, ', ' ORDER BY n.nspname, c.relname)
        FROM jsonb_array_elements($1::jsonb) w(t)
        JOIN pg_namespace n ON n.nspname = w.t->>0
        JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t->>1
        WHERE pg_has_role(c.relowner, 'USAGE')), '')
FROM pg_roles r WHERE r.rolname = current_user
