-- Forgets what is known of the journal of stream $1 on cluster $2.
WITH units AS (
    DELETE FROM outbox_cdc.tally_unit WHERE stream = $1 AND cluster = $2
), rows AS (
    DELETE FROM outbox_cdc.tally_left WHERE stream = $1 AND cluster = $2
)
DELETE FROM outbox_cdc.tally WHERE stream = $1 AND cluster = $2
