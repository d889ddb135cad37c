-- Ends a transaction of our own that has an id. The xmax of a snapshot is the last ended id plus one, so a
-- transaction with a higher id can be in progress without being listed. After this statement every earlier
-- transaction is listed.
SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_current_xact_id()::text END
