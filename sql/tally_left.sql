-- Returns published rows that are not marked, in the order of publishing. Read them after the units, because a
-- late mark may note a unit at any moment.
SELECT unit, "table", id, hash FROM outbox_cdc.tally_left WHERE stream = $1 AND cluster = $2 ORDER BY unit, entry
