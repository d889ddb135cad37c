-- Returns the present timeline in the form in which the names of WAL files begin; empty on a standby. After a
-- promotion it is the new timeline at once, while pg_control still has the old one.
SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END
