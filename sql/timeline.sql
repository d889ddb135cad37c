-- The timeline that is written on, as the names of its files begin; empty on a
-- standby. It is the new one at once after a promotion, when pg_control still
-- has the old one.
SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END
