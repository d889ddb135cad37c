#!/usr/bin/env bash
# Expected: with table.expand.json.payload=true, Debezium's outbox event router writes the payload as the same JSON, or falls back to text.
# Happens:  where an array's objects hold objects with different fields, only the fields of one of them are kept, without an error:
#           {"item":{"sku":"A"}},{"item":{"name":"B"}} becomes {"item":{"sku":"A"}},{"item":{"sku":null}}, or name is kept and sku is lost:
#           that differs from run to run. Objects directly in an array get each other's fields, as null.
# Who:      users of the router whose events have lists of things of several kinds, with JsonConverter and schemas.enable=false.
# Version:  Debezium 3.6.1.Final (embedded engine, PostgreSQL connector), PostgreSQL 15 and 18
# Date:     2026-11-28
. "$(dirname "$0")/lib.sh"

jars io.debezium:debezium-embedded:3.6.1.Final io.debezium:debezium-connector-postgres:3.6.1.Final
postgres wal_level=logical

sql -c "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text NOT NULL,
  type text NOT NULL, payload jsonb NOT NULL)"
sql <<'EOF'
INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES
  ('order', '1', 'placed', '{"lines":[{"item":{"sku":"A","name":"A"}},{"item":{"name":"B","sku":"B"}}]}'),
  ('order', '2', 'placed', '{"lines":[{"item":{"sku":"A"}},{"item":{"name":"B"}}]}'),
  ('order', '3', 'placed', '{"lines":[{"discounts":[{"percent":5}]},{"discounts":[{"code":"X"}]}]}'),
  ('order', '4', 'placed', '{"lines":[{"sku":"A"},{"name":"B"}]}');
EOF

cat >"$work/Engine.java" <<'EOF'
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

public class Engine {
    public static void main(String[] settings) throws Exception {
        var properties = new Properties();
        for (String s : settings) {
            properties.setProperty(s.substring(0, s.indexOf('=')), s.substring(s.indexOf('=') + 1));
        }
        var records = new CountDownLatch(4);
        var engine = DebeziumEngine.create(Json.class).using(properties)
            .notifying(record -> {
                System.out.println(record.key() + " " + record.value());
                records.countDown();
            }).build();
        Executors.newSingleThreadExecutor().execute(engine);
        boolean all = records.await(120, TimeUnit.SECONDS);
        engine.close();
        System.exit(all ? 0 : 1);
    }
}
EOF
jvm "$work/Engine.java" name=outbox connector.class=io.debezium.connector.postgresql.PostgresConnector \
  offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore plugin.name=pgoutput topic.prefix=app \
  database.hostname=127.0.0.1 "database.port=$PGPORT" database.user=postgres database.password=unused database.dbname=postgres \
  table.include.list=public.outbox transforms=outbox transforms.outbox.type=io.debezium.transforms.outbox.EventRouter \
  transforms.outbox.table.expand.json.payload=true converter.schemas.enable=false >"$work/out" 2>"$work/log" ||
  fail "the engine: $(tail -n 1 "$work/log")"

of() { sed -n "s/^\"\?$1\"\? //p" "$work/out"; }
kept() { of "$1" | grep -oE "$2" | wc -l; }
expect "values kept of items with the same fields" 4 "$(kept 1 '"[AB]"')"
expect "values kept of two items with different fields" 1 "$(kept 2 '"[AB]"')"
expect "values kept of two discounts with different fields" 1 "$(kept 3 '5|"X"')"
expect "values kept of lines with different fields" 2 "$(kept 4 '"[AB]"')"
expect "nulls that these lines got" 2 "$(kept 4 null)"
cat "$work/out"
done_here
