-- Ends a pause: that of one table ($2), or of everything (NULL).
UPDATE outbox_cdc.leader SET paused = CASE WHEN $2::text IS NULL THEN '{}' ELSE paused - $2::text END WHERE stream = $1
