-- Who has a lock: its holder, how many seconds it is still held, and how long ago it was
-- taken. Columns may be NULL or infinite whatever the library writes. $1 name.
SELECT l.locked_by::text,
    (extract(epoch FROM l.lock_until)::float8 - extract(epoch FROM timezone('utc', CURRENT_TIMESTAMP))::float8) AS remaining,
    (extract(epoch FROM timezone('utc', CURRENT_TIMESTAMP))::float8 - extract(epoch FROM l.locked_at)::float8) AS age
FROM shedlock AS l
WHERE l.name = $1
