-- Gives a lock back. $1 is the name, $2 the holder.
UPDATE shedlock AS l
SET lock_until = timezone('utc', CURRENT_TIMESTAMP)
WHERE l.name = $1 AND l.locked_by = $2 AND l.lock_until > timezone('utc', CURRENT_TIMESTAMP)
