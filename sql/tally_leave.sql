-- Makes entries for rows of units of stream $1 that are to be marked later. $2 are the clusters, $3 the units,
-- $4 the rows' numbers within the unit, $5 the tables, $6 the ids as text[], $7 the hashes. $8 is a transaction
-- id: a row that is absent once all earlier transactions have ended will never appear.
INSERT INTO outbox_cdc.tally_left (stream, cluster, unit, entry, "table", id, hash, horizon)
SELECT $1, l.cluster, l.unit, l.entry, l."table", l.id::text[], l.hash, $8::text::xid8
FROM unnest($2::text[], $3::bigint[], $4::integer[], $5::text[], $6::text[], $7::bytea[]) AS l(cluster, unit, entry, "table", id, hash)
