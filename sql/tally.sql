-- What streams that deliver exactly once remember of the journals of their Kafka
-- clusters: which units are noted, and which published rows are not marked. A unit
-- is noted in the transaction that marks its rows. Every statement may be repeated.

-- One row per stream and cluster. Every unit up to unit, which is at offset place of
-- the journal (the topic's id), is noted. lsn: rows of tables without state up to there
-- are settled, and units up to unit name no others; it is a position for that slot (see
-- statestore.Server). tables: what the stream publishes, as in outbox_cdc.leader's claim.
CREATE TABLE IF NOT EXISTS outbox_cdc.tally (
    stream      text        NOT NULL,
    cluster     text        NOT NULL,
    journal     text        NOT NULL,
    unit        bigint      NOT NULL DEFAULT 0,
    place       bigint      NOT NULL DEFAULT 0,
    lsn         pg_lsn      NOT NULL DEFAULT '0/0',
    slot        text        NOT NULL DEFAULT '',
    closed      boolean     NOT NULL DEFAULT false,
    tables      jsonb       NOT NULL DEFAULT '[]',
    PRIMARY KEY (stream, cluster)
);

ALTER TABLE outbox_cdc.tally ADD COLUMN IF NOT EXISTS slot text NOT NULL DEFAULT '';

-- Every stream of the database asks whether one that delivered exactly once left its tables
-- unsettled. Others do not get here: they have no USAGE on the schema.
GRANT SELECT ON outbox_cdc.tally TO PUBLIC;

COMMENT ON TABLE outbox_cdc.tally IS 'outbox-cdc: up to where the journals of exactly-once delivery are noted';

-- Units that are noted before one that is not yet.
CREATE TABLE IF NOT EXISTS outbox_cdc.tally_unit (
    stream      text        NOT NULL,
    cluster     text        NOT NULL,
    unit        bigint      NOT NULL,
    place       bigint      NOT NULL,
    PRIMARY KEY (stream, cluster, unit)
);

COMMENT ON TABLE outbox_cdc.tally_unit IS 'outbox-cdc: units that are noted before the head has passed them';

-- Published rows that could not be marked when their unit was noted: locked, not
-- visible yet, or refused. A row that is absent when every transaction before horizon
-- has ended will not come. entry counts them within a unit, since an id may be longer than
-- an index entry can be.
CREATE TABLE IF NOT EXISTS outbox_cdc.tally_left (
    stream      text        NOT NULL,
    cluster     text        NOT NULL,
    unit        bigint      NOT NULL,
    entry       integer     NOT NULL,
    "table"     text        NOT NULL,
    id          text[]      NOT NULL,
    hash        bytea       NOT NULL,
    horizon     xid8        NOT NULL,
    PRIMARY KEY (stream, cluster, unit, entry)
);

COMMENT ON TABLE outbox_cdc.tally_left IS 'outbox-cdc: rows that were published and are still to be marked';
