-- "published" has the tables that publications publish by their own names, as pg_publication_tables lists them
-- from version 15 on. That view opens each table, and so waits for every session that has one locked. A
-- statement should read relid and pubname first, and the other columns in a lateral subquery for its own tables,
-- so that only their row filters are printed. Printing a filter opens its table, so the filter of a locked table
-- is not printed. "published" must not call a volatile function, such as those behind pg_locks and
-- pg_partition_ancestors: the server would then compute the whole list for each reader.
WITH locked AS MATERIALIZED (
    SELECT l.relation FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
), published AS NOT MATERIALIZED (
    SELECT p.pubname, p.pubupdate, c.oid AS relid,
        to_jsonb(ARRAY(SELECT a.attname::text FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                AND CASE WHEN r.prattrs IS NOT NULL THEN a.attnum = ANY (r.prattrs::int2[])
                    ELSE a.attgenerated = '' OR a.attgenerated = 's' AND to_jsonb(p)->>'pubgencols' = 's' END -- from 18 on
            ORDER BY a.attnum)) AS attnames,
        CASE WHEN r.prqual IS NULL THEN NULL
            WHEN EXISTS (SELECT FROM locked l WHERE l.relation = r.prrelid) THEN '(not known: the table is locked)'
            ELSE pg_get_expr(r.prqual, r.prrelid) END AS rowfilter
    FROM pg_publication p CROSS JOIN pg_class c
    LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid AND NOT p.puballtables
        AND NOT EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)
    CROSS JOIN LATERAL (
        -- Whether the table itself, and whether a partitioned table above it, is in the publication, and whether
        -- one of them is excluded from all tables (EXCEPT, from 19 on).
        SELECT coalesce(bool_or(m.relid = c.oid) FILTER (WHERE m.listed), false) AS itself,
            coalesce(bool_or(m.relid <> c.oid) FILTER (WHERE m.listed), false) AS above, coalesce(bool_or(m.excluded), false) AS excluded
        FROM (
            WITH RECURSIVE up AS (
                SELECT c.oid AS relid
                UNION ALL
                SELECT i.inhparent FROM up JOIN pg_class k ON k.oid = up.relid AND k.relispartition
                    JOIN pg_inherits i ON i.inhrelid = k.oid AND NOT i.inhdetachpending
            )
            SELECT mc.oid AS relid, coalesce((to_jsonb(x)->>'prexcept')::boolean, false) AS excluded,
                x.oid IS NOT NULL OR mc.oid >= 16384 AND mc.relkind IN ('r', 'p') AND mc.relpersistence = 'p' AND (p.puballtables
                    OR EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = mc.relnamespace)) AS listed
            FROM up JOIN pg_class mc ON mc.oid = up.relid
            LEFT JOIN pg_publication_rel x ON x.prpubid = p.oid AND x.prrelid = mc.oid
        ) m
    ) found
    WHERE NOT found.excluded AND CASE WHEN p.pubviaroot THEN found.itself AND NOT found.above
        ELSE c.relkind <> 'p' AND (found.itself OR found.above AND NOT p.puballtables) END
)
