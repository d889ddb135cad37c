-- Takes a lock that nobody holds. One affected row: the lock is ours. This is the statement of
-- net.javacrumbs.shedlock with usingDbTime on PostgreSQL. $1 is the name, $2 milliseconds, $3 the holder.
INSERT INTO shedlock AS l (name, lock_until, locked_at, locked_by)
VALUES ($1, timezone('utc', CURRENT_TIMESTAMP) + $2::bigint * interval '1 millisecond', timezone('utc', CURRENT_TIMESTAMP), $3)
ON CONFLICT (name) DO UPDATE
SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + $2::bigint * interval '1 millisecond',
    locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $3
WHERE l.name = $1 AND l.lock_until <= timezone('utc', CURRENT_TIMESTAMP)
