SELECT kind, cluster, "table", topic, key, id, cause, reason, since, next, row_id
FROM outbox_cdc.park
WHERE stream = $1
ORDER BY since, scope
