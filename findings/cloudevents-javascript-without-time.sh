#!/usr/bin/env bash
# Expected: the JavaScript SDK reads every valid event from Kafka in both modes. An event's time is optional.
# Happens:  a structured event without time is a RangeError ("Invalid time value") from Kafka.toEvent, and cannot be read. The same event is read
#           in binary mode, and by HTTP.toEvent.
# Who:      consumers in JavaScript of producers that leave the time out, or leave it to the record's timestamp.
# Version:  cloudevents 10.0.0 (npm)
# Date:     2026-11-28
. "$(dirname "$0")/lib.sh"

node_packages cloudevents@10.0.0

cat >"$work/read.cjs" <<'EOF'
const { HTTP, Kafka } = require('cloudevents')

const read = (name, event) => {
  try {
    console.log(name, JSON.stringify(event().data))
  } catch (e) {
    console.log(name, `${e.constructor.name}: ${e.message}`)
  }
}
const structured = { 'content-type': 'application/cloudevents+json' }
const json = (more) => JSON.stringify({ specversion: '1.0', id: '1', source: '/orders', type: 'placed', data: { a: 1 }, ...more })
const binary = { 'content-type': 'application/json', ce_specversion: '1.0', ce_id: '1', ce_source: '/orders', ce_type: 'placed' }

read('with-time', () => Kafka.toEvent({ headers: structured, key: '42', value: json({ time: '2026-11-28T12:00:00Z' }) }))
read('without-time', () => Kafka.toEvent({ headers: structured, key: '42', value: json() }))
read('binary', () => Kafka.toEvent({ headers: binary, key: '42', value: '{"a":1}' }))
read('http', () => HTTP.toEvent({ headers: structured, body: json() }))
EOF
node "$work/read.cjs" >"$work/out"

line() { sed -n "s/^$1 //p" "$work/out"; }
expect "structured, with a time" '{"a":1}' "$(line with-time)"
expect "structured, without" "RangeError: Invalid time value" "$(line without-time)"
expect "binary, without" '{"a":1}' "$(line binary)"
expect "HTTP, structured, without" '{"a":1}' "$(line http)"
done_here
