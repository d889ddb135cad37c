-- from: ThreeDotsLabs/watermill-sql queue_schema_adapter_postgresql.go
-- want: id=offset topic=? key=- column=acked pending=false sent=true created=created_at
CREATE TABLE watermill_orders (
    "offset" SERIAL PRIMARY KEY,
    "uuid" VARCHAR(36) NOT NULL,
    "payload" JSON DEFAULT NULL,
    "metadata" JSON DEFAULT NULL,
    "acked" BOOLEAN NOT NULL DEFAULT FALSE,
    "created_at" timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP);
