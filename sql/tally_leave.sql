-- Leaves rows of units of stream $1 to be marked later: $2 clusters, $3 units, $4 their numbers
-- within the unit, $5 tables, $6 ids as text[], $7 hashes, and $8 a transaction id: a row that is
-- absent once all earlier transactions have ended will not come.
INSERT INTO outbox_cdc.tally_left (stream, cluster, unit, entry, "table", id, hash, horizon)
SELECT $1, l.cluster, l.unit, l.entry, l."table", l.id::text[], l.hash, $8::text::xid8
FROM unnest($2::text[], $3::bigint[], $4::integer[], $5::text[], $6::text[], $7::bytea[]) AS l(cluster, unit, entry, "table", id, hash)
