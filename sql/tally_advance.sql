-- Moves the head of a tally over the units that are noted without a gap. The head, and the numbers that it
-- replaces, change together.
WITH head AS MATERIALIZED (
    SELECT unit FROM outbox_cdc.tally WHERE stream = $1 AND cluster = $2
), last AS MATERIALIZED (
    SELECT n.unit, n.place FROM head, (
        SELECT u.unit, u.place, row_number() OVER (ORDER BY u.unit) AS nth
        FROM outbox_cdc.tally_unit u, head h WHERE u.stream = $1 AND u.cluster = $2 AND u.unit > h.unit
    ) n WHERE n.unit = head.unit + n.nth
    ORDER BY n.unit DESC LIMIT 1
), moved AS (
    UPDATE outbox_cdc.tally t SET unit = last.unit, place = last.place FROM last
    WHERE t.stream = $1 AND t.cluster = $2 AND t.unit < last.unit
    RETURNING t.unit
)
DELETE FROM outbox_cdc.tally_unit u USING moved WHERE u.stream = $1 AND u.cluster = $2 AND u.unit <= moved.unit
