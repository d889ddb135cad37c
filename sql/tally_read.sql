-- Returns the tally of a stream and cluster, with the units that are noted behind its head.
SELECT t.journal, t.closed, t.unit, t.place, t.lsn::text, coalesce(n.units, '{}'), coalesce(n.places, '{}')
FROM outbox_cdc.tally t CROSS JOIN LATERAL (
    SELECT array_agg(u.unit ORDER BY u.unit) AS units, array_agg(u.place ORDER BY u.unit) AS places
    FROM outbox_cdc.tally_unit u WHERE u.stream = t.stream AND u.cluster = t.cluster AND u.unit > t.unit
) n
WHERE t.stream = $1 AND t.cluster = $2
