-- Where the WAL ends: no position that was sent before this was asked is above it.
SELECT pg_current_wal_insert_lsn()::text
