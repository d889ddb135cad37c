-- The schema of outbox-cdc itself: who leads each stream, and what is parked.
-- Every statement may be repeated.

CREATE SCHEMA IF NOT EXISTS outbox_cdc;

-- One row per stream. epoch is raised by each leadership; every write to park
-- is refused unless it comes from the current epoch. The columns from
-- system_id on say which slot of which server the stream went on from, so that
-- a foreign slot or a restored backup is noticed.
CREATE TABLE IF NOT EXISTS outbox_cdc.leader (
    stream      text        PRIMARY KEY,
    epoch       bigint      NOT NULL DEFAULT 0,
    holder      text        NOT NULL DEFAULT '',
    since       timestamptz NOT NULL DEFAULT now(),
    slot        text        NOT NULL DEFAULT '',
    system_id   text        NOT NULL DEFAULT '',
    timeline    bigint      NOT NULL DEFAULT 0,
    slot_point  pg_lsn      NOT NULL DEFAULT '0/0',
    stopped     pg_lsn      NOT NULL DEFAULT '0/0',
    publication text        NOT NULL DEFAULT ''
);

-- relations: which relation each table was when the stream went on, so that a
-- swapped table is noticed. claim: which tables, or shares of them, the leader of
-- an epoch publishes, so that no other stream does. paused: by table, or by nothing for
-- the whole stream, who paused it and when.
ALTER TABLE outbox_cdc.leader ADD COLUMN IF NOT EXISTS relations jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS claim jsonb NOT NULL DEFAULT '{}', ADD COLUMN IF NOT EXISTS paused jsonb NOT NULL DEFAULT '{}';

COMMENT ON TABLE outbox_cdc.leader IS 'outbox-cdc: the leader of each stream, and the slot it went on from';

-- One row per parked scope. scope is the SHA-256 of the columns kind to id,
-- since a record key may be longer than an index entry can be.
CREATE TABLE IF NOT EXISTS outbox_cdc.park (
    stream      text        NOT NULL,
    scope       bytea       NOT NULL,
    kind        text        NOT NULL CHECK (kind IN ('stream', 'cluster', 'table', 'topic', 'key', 'row')),
    cluster     text        NOT NULL DEFAULT '',
    "table"     text        NOT NULL DEFAULT '',
    topic       text        NOT NULL DEFAULT '',
    key         bytea       NOT NULL DEFAULT '',
    id          text[]      NOT NULL DEFAULT '{}',
    cause       text        NOT NULL,
    reason      text        NOT NULL DEFAULT '',
    since       timestamptz NOT NULL,
    next        timestamptz,
    row_id      text[]      NOT NULL DEFAULT '{}',
    PRIMARY KEY (stream, scope)
);

COMMENT ON TABLE outbox_cdc.park IS 'outbox-cdc: what is left to the sweeper, and why';
