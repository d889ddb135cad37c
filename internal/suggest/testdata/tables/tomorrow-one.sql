-- from: tomorrow-one/transactional-outbox V2020__add-outbox-tables.sql
-- want: profile=tomorrow-one
CREATE TABLE outbox_kafka (
    id BIGSERIAL PRIMARY KEY,
    created TIMESTAMP WITHOUT TIME ZONE NOT NULL,
    processed TIMESTAMP WITHOUT TIME ZONE NULL,
    topic VARCHAR(128) NOT NULL,
    key VARCHAR(128) NULL,
    value BYTEA NOT NULL,
    headers JSONB NULL);
