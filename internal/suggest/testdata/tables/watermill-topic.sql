-- from: ThreeDotsLabs/watermill-sql schema_adapter_postgresql.go
-- want: id=transaction_id,offset topic=? key=- published=?none created=created_at
CREATE TABLE watermill_orders (
    "offset" BIGSERIAL,
    "uuid" VARCHAR(36) NOT NULL,
    "created_at" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "payload" JSON DEFAULT NULL,
    "metadata" JSON DEFAULT NULL,
    "transaction_id" xid8 NOT NULL,
    PRIMARY KEY ("transaction_id", "offset"));
