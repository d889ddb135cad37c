-- from: invented, unlike all others
-- want: id=recordId topic=destTopic key=msgKey payload=msgValue column=isDelivered pending=false,null sent=true created=tsCreated
CREATE TABLE "kafkaRecords" ("recordId" char(26) PRIMARY KEY, "destTopic" text NOT NULL, "msgKey" text, "msgValue" text, "msgHeaders" json, "isDelivered" boolean, "tsCreated" timestamptz DEFAULT now());
INSERT INTO "kafkaRecords" VALUES ('01ARZ3NDEKTSV4RRFFQ69G5FAV','orders','k','{"a":1}','{"x":"y"}',NULL,now());
