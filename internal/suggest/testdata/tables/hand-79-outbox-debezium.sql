-- from: mstf-yalcin/outbox-debezium init.sql
-- want: profile=debezium
CREATE TABLE "outbox" (
    "id" uuid NOT NULL,
    "aggregateid" character varying(255),
    "aggregatetype" character varying(255),
    "payload" character varying(2000),
    "type" character varying(255),
    PRIMARY KEY ("id"));
