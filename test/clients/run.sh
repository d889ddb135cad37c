#!/usr/bin/env bash
# Reads one topic of transactions with each library that docs/consumers.md names, as far as this machine can install it, and compares what
# comes with want.txt. It needs Java 17, Maven, Go, Python 3.9, Node.js 20 and Rust 1.85; a library that cannot be installed is said to be left
# out. Rust's rdkafka and the two of JavaScript that bring librdkafka are compiled: that takes minutes, a C++ compiler, and the headers of
# libcurl, OpenSSL, zlib and zstd.
# run.sh [NAME…]: only these libraries.
. "$(dirname "$0")/../../findings/lib.sh"

here=$(cd "$(dirname "$0")" && pwd)
python=(confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0)
declare -A node=([kafkajs]=kafkajs@2.2.4 [platformatic]=@platformatic/kafka@1.35.0 [node-rdkafka]=node-rdkafka@3.6.1
  [kafka-javascript]=@confluentinc/kafka-javascript@1.10.1)

wanted() { [ ${#only[@]} = 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }
only=("$@")

kafka 4.4.0
jvm "$here/Fixture.java" "$brokers" 2>"$work/fixture.log" || fail "the fixture: $(tail -n 1 "$work/fixture.log")"

# any tells whether one of these is wanted.
any() {
  local one
  for one in "$@"; do if wanted "$one"; then return 0; fi; done
  return 1
}

have_python='' have_go='' have_rust=''
declare -A have_node
if any confluent-kafka kafka-python aiokafka && (python_packages "${python[@]}"); then have_python=yes; fi
for library in "${!node[@]}"; do # each in a folder of its own: one that cannot be compiled takes no other with it
  mkdir "$work/$library"
  cp "$here/read.mjs" "$work/$library"
  if wanted "$library" && (work=$work/$library node_packages "${node[$library]}"); then have_node[$library]=yes; fi
done
if any rdkafka rskafka && command -v cargo >/dev/null &&
  CARGO_TARGET_DIR=$work/rust cargo build --quiet --locked --manifest-path "$here/rust/Cargo.toml" 2>"$work/cargo.log"; then have_rust=yes; fi
if any franz-go sarama kafka-go && (cd "$here/go" && go build -o "$work/read" .); then have_go=yes; fi

# read_by LIBRARY MODE prints the values that came, in one line.
read_by() {
  case $1 in
    java-*) jvm "$here/Read.java" "$brokers" mixed "$2" "${1#java-}" ;;
    confluent-kafka | kafka-python | aiokafka)
      [ -n "$have_python" ] || return 3
      timeout 60 "$work/venv/bin/python" "$here/read.py" "$brokers" mixed "$2" "$1"
      ;;
    kafkajs | platformatic | node-rdkafka | kafka-javascript)
      [ -n "${have_node[$1]:-}" ] || return 3
      timeout 60 node "$work/$1/read.mjs" "$brokers" mixed "$2" "$1"
      ;;
    rdkafka | rskafka)
      [ -n "$have_rust" ] || return 3
      timeout 60 "$work/rust/debug/read" "$brokers" mixed "$2" "$1"
      ;;
    *)
      [ -n "$have_go" ] || return 3
      "$work/read" "$brokers" mixed "$2" "$1"
      ;;
  esac 2>>"$work/$1.log"
}

# in_order sorts what a share group gives: it promises no order.
in_order() { if [[ $1 == *-share ]]; then tr ' ' '\n' | sort | paste -sd ' '; else cat; fi; }

while IFS='|' read -r library mode want; do
  wanted "$library" || continue
  got=$(read_by "$library" "$mode" </dev/null) && code=0 || code=$?
  if [ "$code" = 3 ]; then
    echo "left out      $library: could not be installed"
  elif [ "$code" != 0 ]; then
    expect "$library, $mode" "$want" "error: $(tail -n 1 "$work/$library.log")"
  else
    expect "$library, $mode" "$want" "$(in_order "$library" <<<"$got")"
  fi
done < <(grep -v '^#' "$here/want.txt")
done_here
