-- from: invented, unlike all others
-- want: id=TenantId,Seq topic=? key=?Doc payload=Doc column=State pending=0 sent=?1 attempts=Tries created=InsertedUtc
CREATE TABLE "MessageQueueOut" ("TenantId" int NOT NULL, "Seq" bigint NOT NULL, "Kind" varchar(80) NOT NULL, "Doc" text NOT NULL, "State" smallint NOT NULL DEFAULT 0, "Tries" smallint NOT NULL DEFAULT 0, "InsertedUtc" timestamp NOT NULL DEFAULT (now() at time zone 'utc'), PRIMARY KEY ("TenantId","Seq"));
INSERT INTO "MessageQueueOut" ("TenantId","Seq","Kind","Doc","State") SELECT n%3, n, 'InvoiceIssued', '{"invoiceNo": "A'||n||'", "amount": 1.50}', CASE WHEN n < 4 THEN 1 ELSE 0 END FROM generate_series(1,8) n;
