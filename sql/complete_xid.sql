-- Completes a transaction of our own that has an id. The xmax of a snapshot is
-- the last completed id plus one, so a transaction with a higher one is in
-- progress without being listed; after this every older one is.
SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_current_xact_id()::text END
