-- Closes a tally if everything in it is settled. $2 is the leader's epoch, $3 the cluster. It returns 1 if the
-- epoch is the current one, and whether the tally is closed now, or never existed.
WITH guard AS MATERIALIZED (
    SELECT 1 AS current FROM outbox_cdc.leader WHERE stream = $1 AND epoch = $2 FOR SHARE
), shut AS (
    UPDATE outbox_cdc.tally t SET closed = true FROM guard
    WHERE t.stream = $1 AND t.cluster = $3
        AND NOT EXISTS (SELECT FROM outbox_cdc.tally_unit u WHERE u.stream = $1 AND u.cluster = $3 AND u.unit > t.unit)
        AND NOT EXISTS (SELECT FROM outbox_cdc.tally_left l WHERE l.stream = $1 AND l.cluster = $3)
    RETURNING 1
)
SELECT (SELECT count(*) FROM guard),
    EXISTS (SELECT FROM shut) OR NOT EXISTS (SELECT FROM outbox_cdc.tally t WHERE t.stream = $1 AND t.cluster = $3)
