-- A transaction with an id has a commit record, though it changes nothing; the
-- WAL writer flushes it within wal_writer_delay, and the WAL gets behind
-- everything that was there before.
SELECT pg_current_wal_insert_lsn()::text, pg_current_xact_id()::text
