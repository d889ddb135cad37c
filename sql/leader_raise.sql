-- Raises the epoch of a stream, and returns the new epoch with the values that were stored before. $3 is the
-- value for synchronous_commit; NULL keeps it, except that off becomes local.
WITH durability AS MATERIALIZED (
    SELECT set_config('synchronous_commit', coalesce($3::text, nullif(current_setting('synchronous_commit'), 'off'), 'local'), true)
), before AS MATERIALIZED (
    SELECT epoch, holder, since FROM outbox_cdc.leader WHERE stream = $1
)
INSERT INTO outbox_cdc.leader AS l (stream, epoch, holder, since)
SELECT $1, 1, $2, clock_timestamp() FROM durability
ON CONFLICT (stream) DO UPDATE
    SET epoch = l.epoch + 1, holder = excluded.holder, since = excluded.since
RETURNING l.epoch,
    coalesce((SELECT epoch FROM before), 0), coalesce((SELECT holder FROM before), ''), (SELECT since FROM before),
    l.slot, l.system_id, l.timeline, l.slot_point::text, l.stopped::text, l.publication, coalesce(to_jsonb(l)->>'relations', '{}'),
    coalesce(to_jsonb(l)->'claim'->>'server', ''), coalesce(host(inet_server_addr()), 'socket') || ':' || current_setting('port'),
    coalesce(to_jsonb(l)->'claim'->>'fences', '{}')
