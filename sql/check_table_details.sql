-- Returns what a full check also needs of tables: who owns them, what marks cost, and which publications have
-- them. $1 and the result are as in check_table.sql. WithPublished puts "published" before this statement.
SELECT coalesce(jsonb_object_agg(w.place, jsonb_build_object(
    'owner', pg_get_userbyid(c.relowner), 'owned', pg_has_role(c.relowner, 'USAGE'),
    'triggers', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', t.tgname, 'function', t.tgfoid::regproc::text,
            'path', EXISTS (SELECT FROM pg_proc f, unnest(f.proconfig) s WHERE f.oid = t.tgfoid AND starts_with(s, 'search_path='))) ORDER BY t.tgname), '[]')
        FROM pg_trigger t
        WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('A', CASE current_setting('session_replication_role') WHEN 'replica' THEN 'R' ELSE 'O' END) AND t.tgtype & 16 <> 0
          AND (t.tgattr = ''::int2vector OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = w.t->>2 AND a.attnum = ANY (t.tgattr::int2[])))),
    -- Triggers that fire after an INSERT, and whose code contains UPDATE together with the table's name,
    -- TG_TABLE_NAME or the like.
    'completing', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', t.tgname, 'function', t.tgfoid::regproc::text) ORDER BY t.tgname), '[]')
        FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
        WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 4 <> 0 AND t.tgtype & 66 = 0
          AND f.prosrc ~* '[[:<:]]update[[:>:]]' AND (strpos(lower(f.prosrc), lower(c.relname)) > 0 OR f.prosrc ~* '[[:<:]]tg_(table_name|relname|relid)[[:>:]]')),
    'default_partitions', (SELECT coalesce(jsonb_agg(p.partdefid::regclass::text), '[]')
        FROM pg_partition_tree(c.oid) l JOIN pg_partitioned_table p ON p.partrelid = l.relid WHERE p.partdefid <> 0),
    'options', coalesce(to_jsonb(c.reloptions), '[]'),
    'rows', c.reltuples::bigint,
    'bytes', CASE WHEN c.relkind = 'p' THEN (SELECT coalesce(sum(pg_table_size(l.relid)), 0) FROM pg_partition_tree(c.oid) l WHERE l.isleaf)
        ELSE pg_table_size(c.oid) END,
    'updates', coalesce((SELECT sum(s.n_tup_upd) FROM pg_stat_user_tables s WHERE s.relid = c.oid), 0),
    'hot_updates', coalesce((SELECT sum(s.n_tup_hot_upd) FROM pg_stat_user_tables s WHERE s.relid = c.oid), 0),
    'dead', coalesce((SELECT sum(s.n_dead_tup) FROM pg_stat_user_tables s WHERE s.relid = c.oid), 0),
    -- Indexes that a change of the status has to update.
    'status_indexes', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', x.relname, 'partial', i.indpred IS NOT NULL) ORDER BY x.relname), '[]')
        FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = w.t->>2
        WHERE i.indrelid = c.oid AND (a.attnum = ANY (i.indkey::int2[]) OR EXISTS
            (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.refobjsubid = a.attnum))),
    'broken_indexes', (SELECT coalesce(jsonb_agg(x.relname ORDER BY x.relname), '[]')
        FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid AND NOT i.indisvalid AND x.relkind = 'i'),
    'identity', c.relreplident,
    'has_key', EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND (i.indisprimary AND c.relreplident = 'd' OR i.indisreplident)),
    -- Publications that make the server refuse an UPDATE of a table without a replica identity.
    'update_publications', coalesce(u.updating, '[]'), 'row_filters', coalesce(u.filters, '[]'),
    'privileges', (SELECT coalesce(jsonb_agg(p.privilege), '[]') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p(privilege)
        WHERE has_table_privilege(c.oid, p.privilege)),
    'updatable', (SELECT coalesce(jsonb_agg(a.attname ORDER BY a.attnum), '[]') FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND has_column_privilege(c.oid, a.attnum, 'UPDATE'))
)), '{}')::text
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY w(t, place)
JOIN pg_namespace n ON n.nspname = w.t->>0
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t->>1 AND c.relkind IN ('r', 'p')
CROSS JOIN LATERAL (
    SELECT jsonb_agg(DISTINCT p.pubname) FILTER (WHERE p.pubupdate) AS updating, -- version 14 may list a partition twice
        jsonb_agg(jsonb_build_object('publication', p.pubname, 'where', p.rowfilter) ORDER BY p.pubname) FILTER (WHERE p.rowfilter IS NOT NULL) AS filters
    FROM published p WHERE p.relid = c.oid
) u
