-- A transaction with an id writes a commit record even if it changes nothing. The WAL writer flushes that record
-- within wal_writer_delay, and so everything in the WAL before it.
SELECT pg_current_wal_insert_lsn()::text, pg_current_xact_id()::text
