-- Which relation each of some tables' names stands for now: a swap by rename, a
-- new schema of the same name and a table that was created again change it.
-- $1 are the tables, a JSON array of [schema, name]. 0: there is none.
SELECT coalesce(c.oid, 0)::text
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY w(t, place)
LEFT JOIN pg_namespace n ON n.nspname = w.t->>0
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t->>1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
ORDER BY w.place
