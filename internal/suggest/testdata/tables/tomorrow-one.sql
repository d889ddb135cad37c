-- from: tomorrow-one/transactional-outbox V2020__add-outbox-tables.sql
-- want: topic=topic key=key payload=value sent_at=processed created=created
CREATE TABLE outbox_kafka (
    id BIGSERIAL PRIMARY KEY,
    created TIMESTAMP WITHOUT TIME ZONE NOT NULL,
    processed TIMESTAMP WITHOUT TIME ZONE NULL,
    topic VARCHAR(128) NOT NULL,
    key VARCHAR(128) NULL,
    value BYTEA NOT NULL,
    headers JSONB NULL);
