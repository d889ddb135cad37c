-- Returns which other streams publish rows of these tables, and whether they lead now. If none leads, the stream
-- of this epoch gets the tables. Streams that had the tables before and no longer lead, or that had this slot
-- under another name, lose their claim. A claim is valid for one epoch: the next leader has to claim again. $1
-- is the stream, $2 the epoch (that of no leadership: nothing is written), $3 the claim. $4 says whether the
-- tables keep a state: if not, the slot of another stream may have rows that this one's slot has not.
WITH mine AS (
    SELECT t->>'name' AS name, (t->>'part')::int AS part, (t->>'of')::int AS parts, t->>'by' AS split
    FROM jsonb_array_elements($3::text::jsonb->'tables') t
), rival AS MATERIALIZED (
    SELECT l.stream, l.claim->>'slot' AS slot, l.holder, m.name, EXISTS (
        SELECT FROM pg_locks k
        WHERE k.locktype = 'advisory' AND k.granted AND k.objsubid = 1 AND k.mode = 'ExclusiveLock'
            AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            AND k.classid::bigint = (((l.claim->>'lock')::bigint >> 32) & 4294967295)
            AND k.objid::bigint = ((l.claim->>'lock')::bigint & 4294967295)
    ) AS leads
    FROM outbox_cdc.leader l
    CROSS JOIN jsonb_array_elements(coalesce(l.claim->'tables', '[]')) t
    JOIN mine m ON m.name = t->>'name'
    WHERE l.claim->>'lock' <> $3::text::jsonb->>'lock'
        AND (l.stream = $1 OR (l.claim->>'epoch')::bigint = l.epoch)
        AND NOT (m.parts > 0 AND m.parts = (t->>'of')::int AND m.split = t->>'by' AND m.part <> (t->>'part')::int)
), put AS (
    UPDATE outbox_cdc.leader l SET claim = $3::text::jsonb || jsonb_build_object('epoch', l.epoch,
        'server', coalesce(host(inet_server_addr()), 'socket') || ':' || current_setting('port'))
    WHERE l.stream = $1 AND l.epoch = $2::bigint AND NOT EXISTS (SELECT FROM rival WHERE leads OR NOT $4::boolean AND rival.stream <> $1)
    RETURNING 1
), former AS (
    UPDATE outbox_cdc.leader l SET claim = '{}' FROM put
    WHERE l.stream <> $1 AND (l.stream IN (SELECT rival.stream FROM rival) OR l.claim->>'lock' = $3::text::jsonb->>'lock')
)
SELECT stream, slot, holder, name, leads FROM rival ORDER BY leads DESC, stream, name
