-- This is one statement, and so one transaction, which a stopped client cannot hold open. Only the current epoch
-- may write, and the row lock keeps that epoch current until the commit. $3 is the value for synchronous_commit;
-- NULL keeps it, except that off becomes local.
WITH durability AS MATERIALIZED (
    SELECT set_config('synchronous_commit', coalesce($3::text, nullif(current_setting('synchronous_commit'), 'off'), 'local'), true)
), guard AS MATERIALIZED (
    SELECT 1 AS current
    FROM outbox_cdc.leader, durability
    WHERE stream = $1 AND epoch = $2
    FOR SHARE OF leader
), gone AS (
    DELETE FROM outbox_cdc.park p
    USING unnest($4::bytea[]) AS d(scope), guard
    WHERE p.stream = $1 AND p.scope = d.scope
), put AS (
    INSERT INTO outbox_cdc.park AS p
        (stream, scope, kind, cluster, "table", topic, key, id, cause, reason, since, next, row_id)
    SELECT $1, n.scope, n.kind, n.cluster, n."table", n.topic, n.key, n.id::text[], n.cause, n.reason, n.since, n.next, n.row_id::text[]
    FROM unnest($5::bytea[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bytea[], $11::text[],
                $12::text[], $13::text[], $14::timestamptz[], $15::timestamptz[], $16::text[])
         AS n(scope, kind, cluster, "table", topic, key, id, cause, reason, since, next, row_id), guard
    ON CONFLICT (stream, scope) DO UPDATE
        SET cause = excluded.cause, reason = excluded.reason, since = excluded.since,
            next = excluded.next, row_id = excluded.row_id
)
SELECT count(*) FROM guard
