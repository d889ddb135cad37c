-- Returns the end of the WAL. No position that was sent before this statement lies beyond it.
SELECT pg_current_wal_insert_lsn()::text
