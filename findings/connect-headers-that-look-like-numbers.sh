#!/usr/bin/env bash
# Expected: a header of text goes through Kafka Connect as it is. At most, plain integers become numbers.
# Happens:  SimpleHeaderConverter, which a worker uses if nothing else is set, reads "00e1" as 0, "12e4" as 120000, "0042" as 42 and
#           "1.10" as 1.1, so ids of the same kind ("00e1", "00e2", "3e2a") fall together, and one that a sink stores is another one.
#           The text "null" is a NullPointerException, which fails the task unless errors are tolerated.
# Who:      sinks that take an event's id or version from a header, as a column or as a document's id.
# Version:  connect-api 4.4.0
# Date:     2026-11-28
. "$(dirname "$0")/lib.sh"

jars org.apache.kafka:connect-api:4.4.0

cat >"$work/Headers.java" <<'EOF'
import java.nio.charset.StandardCharsets;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

public class Headers {
    public static void main(String[] values) {
        var converter = new SimpleHeaderConverter();
        for (String value : values) {
            try {
                var read = converter.toConnectHeader("orders", "event-id", value.getBytes(StandardCharsets.UTF_8));
                System.out.println(read.schema().type() + " "
                    + new String(converter.fromConnectHeader("orders", "event-id", read.schema(), read.value()), StandardCharsets.UTF_8));
            } catch (RuntimeException e) {
                System.out.println(e.getClass().getSimpleName());
            }
        }
    }
}
EOF
jvm "$work/Headers.java" 3e2a 00e1 00e2 12e4 0042 1.10 null >"$work/out"

line() { sed -n "$1p" "$work/out"; }
expect "3e2a" "STRING 3e2a" "$(line 1)"
expect "00e1" "INT8 0" "$(line 2)"
expect "00e2" "INT8 0" "$(line 3)"
expect "12e4" "INT32 120000" "$(line 4)"
expect "0042" "INT8 42" "$(line 5)"
expect "1.10" "FLOAT32 1.1" "$(line 6)"
expect "the text null" "NullPointerException" "$(line 7)"
done_here
