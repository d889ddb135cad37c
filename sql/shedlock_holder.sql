-- Returns who has lock $1: the holder, the seconds that are left, and how long ago the lock was taken. Any
-- column may be NULL or infinite, whatever the library writes.
SELECT l.locked_by::text,
    (extract(epoch FROM l.lock_until)::float8 - extract(epoch FROM timezone('utc', CURRENT_TIMESTAMP))::float8) AS remaining,
    (extract(epoch FROM timezone('utc', CURRENT_TIMESTAMP))::float8 - extract(epoch FROM l.locked_at)::float8) AS age
FROM shedlock AS l
WHERE l.name = $1
