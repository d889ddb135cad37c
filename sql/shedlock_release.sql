-- Gives a lock back. $1 name, $2 holder.
UPDATE shedlock AS l
SET lock_until = timezone('utc', CURRENT_TIMESTAMP)
WHERE l.name = $1 AND l.locked_by = $2 AND l.lock_until > timezone('utc', CURRENT_TIMESTAMP)
