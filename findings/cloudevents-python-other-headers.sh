#!/usr/bin/env bash
# Expected: the Python SDK reads an event from a Kafka message by its ce_ headers and content-type. Other headers are none of its business.
# Happens:  it decodes every header before it looks at the name. Any header with a null value is an AttributeError, any that is no UTF-8 (a
#           binary trace context, a uuid of 16 bytes) a UnicodeDecodeError, so the event cannot be read at all. Structured events can.
# Who:      consumers in Python of topics whose producers add headers of their own, or a header with a null value for a NULL.
# Version:  cloudevents 2.2.0 (Python)
# Date:     2026-11-28
. "$(dirname "$0")/lib.sh"

python_packages cloudevents==2.2.0

cat >"$work/read.py" <<'EOF'
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event

event = {"ce_specversion": b"1.0", "ce_id": b"1", "ce_source": b"/orders", "ce_type": b"placed", "content-type": b"application/json"}
others = {"none": {}, "text": {"tenant": b"7"}, "null": {"tenant": None}, "binary": {"trace-bin": bytes([0, 255])}}


def read(name, headers, value):
    try:
        print(name, from_kafka_event(KafkaMessage(headers=headers, key=b"42", value=value)).get_data())
    except Exception as e:
        print(name, type(e).__name__)


for name, other in others.items():
    read(name, event | other, b'{"a":1}')
read("structured", {"content-type": b"application/cloudevents+json", "tenant": None},
     b'{"specversion":"1.0","id":"1","source":"/orders","type":"placed","data":{"a":1}}')
EOF
"$work/venv/bin/python" "$work/read.py" >"$work/out"

with() { sed -n "s/^$1 //p" "$work/out"; }
expect "no other header" "{'a': 1}" "$(with none)"
expect "another header, a text" "{'a': 1}" "$(with text)"
expect "another header, null" "AttributeError" "$(with null)"
expect "another header, binary" "UnicodeDecodeError" "$(with binary)"
expect "structured, with a null header" "{'a': 1}" "$(with structured)"
done_here
