-- The same for version 14, whose view opens no table. It uses to_jsonb because publications have columns and row
-- filters only from version 15 on.
WITH published AS NOT MATERIALIZED (
    SELECT t.pubname, p.pubupdate, c.oid AS relid, to_jsonb(t)->'attnames' AS attnames, to_jsonb(t)->>'rowfilter' AS rowfilter
    FROM pg_publication_tables t
    JOIN pg_publication p ON p.pubname = t.pubname
    JOIN pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
)
