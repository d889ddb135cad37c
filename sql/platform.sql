-- Signs of who runs the server, as one JSON document. Every role may ask.
SELECT jsonb_build_object(
    'roles', (SELECT coalesce(jsonb_agg(r.rolname ORDER BY r.rolname), '[]') FROM pg_roles r WHERE r.rolname IN ('rds_superuser', 'cloudsqlsuperuser',
        'alloydbsuperuser', 'azure_pg_admin', 'neon_superuser', 'supabase_admin', 'crunchy_read', 'crunchy_write', 'streaming_replica')),
    'command_line', (SELECT coalesce(jsonb_agg(s.name ORDER BY s.name), '[]') FROM pg_settings s WHERE s.source = 'command line'),
    'aurora', to_regproc('pg_catalog.aurora_version') IS NOT NULL,
    'cloudnative_pg', EXISTS (SELECT FROM pg_settings s WHERE s.name = 'archive_command' AND s.setting LIKE '/controller/manager %')
)::text
