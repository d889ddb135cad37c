-- from: ThreeDotsLabs/watermill-sql queue_schema_adapter_postgresql.go, watermill components/forwarder/envelope.go
-- want: profile=watermill-forwarder id=offset column=acked pending=false sent=true
CREATE TABLE watermill_outbox (
    "offset" SERIAL PRIMARY KEY,
    "uuid" VARCHAR(36) NOT NULL,
    "payload" JSON DEFAULT NULL,
    "metadata" JSON DEFAULT NULL,
    "acked" BOOLEAN NOT NULL DEFAULT FALSE,
    "created_at" timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP);
INSERT INTO watermill_outbox (uuid, payload, metadata) VALUES ('00000000-0000-4000-8000-000000000001',
    '{"destination_topic":"orders","uuid":"00000000-0000-4000-8000-000000000001","payload":"e30=","metadata":{}}', '{}');
