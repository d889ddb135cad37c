-- from: ThreeDotsLabs/watermill-sql schema_adapter_postgresql.go, watermill components/forwarder/envelope.go
-- want: profile=watermill-forwarder published=?
CREATE TABLE watermill_outbox (
    "offset" BIGSERIAL,
    "uuid" VARCHAR(36) NOT NULL,
    "created_at" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "payload" JSON DEFAULT NULL,
    "metadata" JSON DEFAULT NULL,
    "transaction_id" xid8 NOT NULL,
    PRIMARY KEY ("transaction_id", "offset"));
INSERT INTO watermill_outbox (uuid, payload, metadata, transaction_id) VALUES ('00000000-0000-4000-8000-000000000001',
    '{"destination_topic":"orders","uuid":"00000000-0000-4000-8000-000000000001","payload":"e30=","metadata":{}}', '{}', pg_current_xact_id());
