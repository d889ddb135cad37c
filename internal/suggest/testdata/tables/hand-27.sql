-- from: stored public code, index: "add table for outbox" (custom_headers, sent_at)
-- want: id=message_id topic=? key=aggregate_id sent_at=sent_at created=created_at
CREATE TABLE outbox (
    "message_id" varchar(255) NOT NULL PRIMARY KEY,
    "message_type" varchar(255) NOT NULL,
    "aggregate_id" varchar(255) NOT NULL,
    "custom_headers" text NULL,
    "payload" text NOT NULL,
    "created_at" timestamp NOT NULL,
    "sent_at" timestamp NULL);
