#!/usr/bin/env bash
# Expected: Kafka Connect's JsonConverter keeps the numbers of a JSON value, or refuses it.
# Happens:  an integer beyond 64 bits loses its upper bits without an error: 12345678901234567890 becomes the
#           negative -6101065172474983726. 1e400 becomes the text "Infinity". Reading is enough: a sink gets the wrong number.
# Who:      a sink with value.converter JsonConverter, schemas.enable=false, and unsigned 64-bit ids or numeric amounts in the events.
# Version:  connect-json 4.4.0
# Date:     2026-11-28
. "$(dirname "$0")/lib.sh"

jars org.apache.kafka:connect-json:4.4.0

cat >"$work/Numbers.java" <<'EOF'
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;

public class Numbers {
    public static void main(String[] values) {
        var converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        for (String value : values) {
            var read = converter.toConnectData("orders", value.getBytes(StandardCharsets.UTF_8));
            System.out.println(((Map<?, ?>) read.value()).get("id") + " "
                + new String(converter.fromConnectData("orders", read.schema(), read.value()), StandardCharsets.UTF_8));
        }
    }
}
EOF
jvm "$work/Numbers.java" '{"id":9223372036854775807}' '{"id":12345678901234567890}' '{"id":1e400}' >"$work/out"

line() { sed -n "$1p" "$work/out"; }
expect "the largest that fits" '9223372036854775807 {"id":9223372036854775807}' "$(line 1)"
expect "an unsigned 64-bit id" '-6101065172474983726 {"id":-6101065172474983726}' "$(line 2)"
expect "1e400" 'Infinity {"id":"Infinity"}' "$(line 3)"
done_here
