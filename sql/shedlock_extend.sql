-- Extends a lock that is still ours. No affected row: the lock is not ours. $1 is the name, $2 milliseconds, $3
-- the holder.
UPDATE shedlock AS l
SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + $2::bigint * interval '1 millisecond'
WHERE l.name = $1 AND l.locked_by = $3 AND l.lock_until > timezone('utc', CURRENT_TIMESTAMP)
