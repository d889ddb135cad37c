-- Returns one publication and its mark. The mark changes when the publication is re-created (its oid), renamed
-- or altered (xmin), or when it loses, gains or excludes a table or schema. An excluded table has a '!' (EXCEPT,
-- from 19 on).
SELECT p.oid::text, p.xmin::text, p.puballtables::text, p.pubinsert::text, p.pubupdate::text, p.pubdelete::text,
    p.pubtruncate::text, p.pubviaroot::text, coalesce(obj_description(p.oid, 'pg_publication'), ''),
    coalesce((SELECT string_agg(CASE WHEN to_jsonb(r)->>'prexcept' = 'true' THEN '!' ELSE '' END || r.oid || '=' || r.prrelid, ' ' ORDER BY r.oid) FROM pg_publication_rel r WHERE r.prpubid = p.oid), ''),
    coalesce(to_jsonb(p)->>'pubgencols', '') -- from 18 on
FROM pg_publication p
WHERE p.pubname = $1
