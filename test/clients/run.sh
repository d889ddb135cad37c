#!/usr/bin/env bash
# Reads topics with each library that docs/consumers.md names, as far as this machine can install it, and compares what comes, and what offset
# it commits, with want.txt. It needs Java 17, Maven, Go, Python 3.9, Node.js 20 and Rust 1.85; a library that cannot be installed is said to be left
# out. Rust's rdkafka and the two of JavaScript that bring librdkafka are compiled: that takes minutes, a C++ compiler, and the headers of
# libcurl, OpenSSL, zlib and zstd. outbox-cdc itself publishes two of the topics, from a PostgreSQL.
# run.sh [NAME…]: only these libraries. PGBIN is where PostgreSQL's programs are, unless they are in the PATH.
. "$(dirname "$0")/../../findings/lib.sh"

here=$(cd "$(dirname "$0")" && pwd)
kafka=4.4.0
declare -A java=([connect]=org.apache.kafka:connect-runtime:$kafka [streams]=org.apache.kafka:kafka-streams:$kafka
  [spring]=org.springframework.kafka:spring-kafka:4.1.2)
python=(confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0)
declare -A node=([kafkajs]=kafkajs@2.2.4 [platformatic]=@platformatic/kafka@1.35.0 [node-rdkafka]=node-rdkafka@3.6.1
  [kafka-javascript]=@confluentinc/kafka-javascript@1.10.1)

wanted() { [ ${#only[@]} = 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }
only=("$@")

# any tells whether one of these is wanted.
any() {
  local one
  for one in "$@"; do if wanted "$one"; then return 0; fi; done
  return 1
}

# java_classes FILE… compiles them for jvm.
java_classes() {
  javac -d "$work/classes" -cp "$work/jars/*" "${@/#/$here/}" 2>"$work/javac.log" || fail "javac: $(head -n 1 "$work/javac.log")"
  jar --create --file "$work/jars/classes.jar" -C "$work/classes" .
}

kafka "$kafka"
java_classes Fixture.java Values.java Read.java Lag.java
jvm Fixture "$brokers" 2>"$work/fixture.log" || fail "the fixture: $(tail -n 1 "$work/fixture.log")"

sent() { [ "$(sql -d "$1" -c "SELECT count(*) FROM outbox WHERE status <> 'SENT'")" = 0 ]; }

# own DELIVERY has outbox-cdc publish rows to the topic of that name. It is killed after each: the next leader begins with markers.
own() {
  local row
  createdb "$1"
  cat >"$work/$1.yaml" <<EOF
http: {listen: "127.0.0.1:$(free_port)"}
kafka:
  clusters:
    main: {brokers: ["$brokers"], fencing: required}
streams:
  - {name: $1, delivery: $1, postgres: {dsn: "host=$PGHOST port=$PGPORT user=$PGUSER dbname=$1"}, tables: [{table: public.outbox, profile: native}]}
EOF
  "$work/outbox-cdc" init -c "$work/$1.yaml" --native-table
  "$work/outbox-cdc" init -c "$work/$1.yaml" --kafka
  for row in r0 r1 r2; do
    sql -d "$1" -c "INSERT INTO outbox (topic, key, payload) VALUES ('$1', 'key', '$row')"
    "$work/outbox-cdc" run -c "$work/$1.yaml" &
    started+=($!)
    until_true 60 sent "$1" || fail "outbox-cdc did not send $row: $(tail -n 1 "$work/own.log")"
    kill -KILL $!
    wait $! || true
  done
} >>"$work/own.log" 2>&1

postgres wal_level=logical
(cd "$here/../.." && go build -o "$work/outbox-cdc" ./cmd/outbox-cdc)
own at_least_once
own exactly_once

export CKJS_LINKING=dynamic # kafka-javascript would fetch the libraries that it links

# have has the libraries that could be installed. What may fail has a folder of its own: it takes nothing else with it.
declare -A have=([java-classic]=yes [java-consumer]=yes [java-share]=yes)
for library in "${!java[@]}"; do
  mkdir "$work/$library"
  if wanted "$library" && (work=$work/$library && jars "${java[$library]}" && java_classes Values.java "${library^}.java"); then have[$library]=yes; fi
done
if any confluent-kafka kafka-python aiokafka && (python_packages "${python[@]}"); then
  for library in "${python[@]%%=*}"; do have[$library]=yes; done
fi
for library in "${!node[@]}"; do
  mkdir "$work/$library"
  cp "$here/read.mjs" "$work/$library"
  if wanted "$library" && (work=$work/$library && node_packages "${node[$library]}"); then have[$library]=yes; fi
done
if any rdkafka rskafka && command -v cargo >/dev/null &&
  CARGO_TARGET_DIR=$work/rust cargo build --quiet --locked --manifest-path "$here/rust/Cargo.toml" 2>"$work/cargo.log"; then
  have[rdkafka]=yes have[rskafka]=yes
fi
if any franz-go sarama kafka-go && (cd "$here/go" && go build -o "$work/read" .); then
  have[franz-go]=yes have[sarama]=yes have[kafka-go]=yes
fi

# read_by LIBRARY TOPIC MODE prints the values that came, in one line.
read_by() {
  local args=("$brokers" "$2" "$3" "$1")
  case $1 in
    java-*) jvm Read "${args[@]}" ;;
    connect | streams | spring) (work=$work/$1 && jvm "-Djava.io.tmpdir=$work" "${1^}" "${args[@]}") ;;
    confluent-kafka | kafka-python | aiokafka) timeout 60 "$work/venv/bin/python" "$here/read.py" "${args[@]}" ;;
    kafkajs | platformatic | node-rdkafka | kafka-javascript) timeout 60 node "$work/$1/read.mjs" "${args[@]}" ;;
    rdkafka | rskafka) timeout 60 "$work/rust/debug/read" "${args[@]}" ;;
    *) "$work/read" "${args[@]}" ;;
  esac 2>>"$work/$1.log"
}

# in_order sorts what a share group gives: it promises no order.
in_order() { if [[ $1 == *-share ]]; then tr ' ' '\n' | LC_ALL=C sort | paste -sd ' '; else cat; fi; }

while IFS='|' read -r library topic mode want; do
  wanted "$library" || continue
  if [ -z "${have[$library]:-}" ]; then
    echo "left out      $library: could not be installed"
  elif ! got=$(read_by "$library" "$topic" "$mode" </dev/null); then
    expect "$library, $topic, $mode" "$want" "error: $(tail -n 1 "$work/$library.log")"
  else
    got=$(in_order "$library" <<<"$got")
    if [ "$topic" = ended ]; then got+=", $(jvm Lag "$brokers" "$topic" "$library-$topic-$mode" </dev/null)"; fi
    expect "$library, $topic, $mode" "$want" "$got"
  fi
done < <(grep -v '^#' "$here/want.txt")
done_here
