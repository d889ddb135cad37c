-- In the consumer's own database. Rows older than the longest time after which an event
-- may come again are deleted, see docs/consumers.md.
CREATE TABLE inbox (
    topic       text        NOT NULL,
    event_id    text        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, event_id)
);
CREATE INDEX ON inbox (received_at);
