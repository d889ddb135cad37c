-- The native outbox table, for those who have none yet. An application inserts
--
--     INSERT INTO outbox (topic, key, payload) VALUES ('orders', '42', '{"total": 12}');
--
-- in the transaction that changes its own tables, and nothing else. Every
-- statement here may be repeated.

CREATE TABLE IF NOT EXISTS outbox (
    -- Order per key: ids are drawn at the insert, so writers of one key that
    -- wait for each other (by a row lock on the order, say) draw them in commit order.
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- What consumers tell duplicates by.
    event_id        uuid        NOT NULL DEFAULT gen_random_uuid(),
    -- Every INSERT and every mark checks this. A bound within the pattern ({1,249})
    -- takes 23 µs of it, a length next to it 0.5 µs.
    topic           text        NOT NULL CHECK (topic !~ '[^a-zA-Z0-9._-]' AND length(topic) BETWEEN 1 AND 249 AND topic NOT IN ('.', '..')),
    key             text,                -- NULL: a record without key, without order
    payload         bytea,               -- NULL: a tombstone
    headers         jsonb,               -- an object of strings
    available_after timestamptz,         -- not to be published before
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),

    -- Written by outbox-cdc only. ARCHIVED is for failed rows that are let go (failed discard).
    status          text        NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENT', 'FAILED', 'ARCHIVED')),
    sent_at         timestamptz,
    attempts        integer     NOT NULL DEFAULT 0,
    last_error      text
) WITH (
    -- Every row is updated once, soon after its insert: room for that in the
    -- page, and a vacuum that keeps pace with it.
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05
);

-- What the sweeper reads: small however large the table grows. A column in an
-- index, its predicate included, keeps the UPDATE that marks a row from being
-- HOT; that is paid for the sweep. PostgreSQL 15, 300,000 rows of 256 bytes,
-- marked by 1000 on one connection (rows/s, WAL per row), and then an empty
-- sweep of the vacuumed table:
--
--     no index with the status   85,000   880 B    120 ms, growing with the table
--     this one                   81,000   930 B    0.05 ms
--     (status, created_at)       48,000  1020 B    0.05 ms
--     published: delete         201,000   450 B    0.05 ms
--
-- Until vacuum the sweep steps over the entries of rows just marked, once. The time
-- comes first so that rows which wait for theirs, however many, are not read.
CREATE INDEX IF NOT EXISTS outbox_due ON outbox (available_after, id) WHERE status = 'PENDING';

-- What status, the page and outbox-cdc failed read, and a start where on_failed is block. Only failed rows are in it.
CREATE INDEX IF NOT EXISTS outbox_failed ON outbox (id) WHERE status = 'FAILED';
