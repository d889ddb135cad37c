#!/usr/bin/env bash
# What the scripts of this folder share. A script sources it and calls, in this
# order: what it needs (jars, kafka, postgres), its run, expect for each fact,
# and done_here at the end. All lies in a temporary folder and ends with the script.

set -euo pipefail

work=$(mktemp -d "${TMPDIR:-/tmp}/finding.XXXXXX")
chmod 755 "$work"
started=()
changed=0

tidy() {
  local pid
  # PostgreSQL waits for its sessions at TERM, and not at INT, which Java ignores here.
  for pid in "${started[@]}"; do
    kill -INT "$pid" 2>/dev/null || continue
    kill -TERM "$pid" 2>/dev/null || true
  done
  for pid in "${started[@]}"; do
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
  done
  if [ -n "${KEEP:-}" ]; then echo "kept: $work" >&2; else rm -rf "$work"; fi
}
trap tidy EXIT

fail() {
  echo "NOT RUN: $*" >&2
  exit 2
}

need() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || fail "$program is missing"
  done
}

# expect WHAT WANTED GOT prints a fact, and remembers that it is no longer so.
expect() {
  if [ "$2" = "$3" ]; then
    printf 'as described  %s: %s\n' "$1" "$3"
  else
    changed=1
    printf 'CHANGED       %s: %s, and no longer %s\n' "$1" "$3" "$2"
  fi
}

done_here() { exit "$changed"; }

# jars GROUP:ARTIFACT:VERSION… puts them and what they need into $work/jars.
jars() {
  need java mvn
  local g a v
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>finding</groupId><artifactId>finding</artifactId><version>1</version><dependencies>'
    while IFS=: read -r g a v; do
      echo "<dependency><groupId>$g</groupId><artifactId>$a</artifactId><version>$v</version></dependency>"
    done < <(printf '%s\n' "$@" org.slf4j:slf4j-nop:1.7.36)
    echo '</dependencies></project>'
  } >"$work/pom.xml"
  mvn -q -B -f "$work/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    "-DoutputDirectory=$work/jars" >"$work/mvn.log" 2>&1 || fail "Maven: $(grep -m1 ERROR "$work/mvn.log")"
}

# jvm runs Java with the jars: a class, or a source file.
jvm() { java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$work/jars/*" "$@"; }

# serve LOG CLASS [ARGUMENT…] runs it until the script ends. Its process is Java's own: to end a function's would leave Java behind.
serve() {
  java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$work/jars/*" "${@:2}" >>"$1" 2>&1 &
  started+=($!)
}

# python_packages NAME==VERSION… makes $work/venv with them.
python_packages() {
  need python3
  { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q --disable-pip-version-check "$@"; } >"$work/pip.log" 2>&1 ||
    fail "pip: $(tail -n 1 "$work/pip.log")"
}

# node_packages NAME@VERSION… puts them where scripts in $work find them.
node_packages() {
  need node npm
  npm install --prefix "$work" --silent --no-save --no-audit --no-fund "$@" >"$work/npm.log" 2>&1 || fail "npm: $(tail -n 1 "$work/npm.log")"
}

# until_true SECONDS COMMAND… waits for it.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 30000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# kafka VERSION [LINE OF server.properties…] starts one broker: $brokers is its
# address, and its jars are there for jvm.
kafka() {
  local version=$1 port control
  shift
  [ -e "$work/jars" ] || jars "org.apache.kafka:kafka_2.13:$version"
  port=$(free_port) control=$(free_port)
  export brokers=127.0.0.1:$port
  cat >"$work/server.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$control
listeners=PLAINTEXT://127.0.0.1:$port,CONTROL://127.0.0.1:$control
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT
controller.listener.names=CONTROL
log.dirs=$work/kafka
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
$(printf '%s\n' "$@")
EOF
  jvm kafka.tools.StorageTool format -t ZmluZGluZ3MtY2x1c3Rlcg -c "$work/server.properties" >"$work/kafka.log" 2>&1 ||
    fail "formatting: $(tail -n 1 "$work/kafka.log")"
  serve "$work/kafka.log" kafka.Kafka "$work/server.properties"
  until_true 120 listens "$port" || fail "Kafka did not start: $(tail -n 1 "$work/kafka.log")"
}

# postgres [SETTING=VALUE…] starts a server with PostgreSQL's programs in the PATH
# or in PGBIN: psql and the like find it by PGHOST and PGPORT.
postgres() {
  [ -z "${PGBIN:-}" ] || PATH=$PGBIN:$PATH
  need initdb pg_ctl psql
  local setting as=()
  if [ "$(id -u)" = 0 ]; then
    need setpriv
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups env "HOME=$work/pg" "PATH=$PATH")
  fi
  mkdir "$work/pg"
  [ "$(id -u)" != 0 ] || chown 65534:65534 "$work/pg"
  export PGHOST=$work/pg PGPORT PGUSER=postgres PGDATABASE=postgres
  PGPORT=$(free_port)
  "${as[@]}" initdb -D "$work/pg/data" -U postgres -A trust --no-sync -E UTF8 --locale=C >"$work/pg.log" 2>&1 ||
    fail "initdb: $(tail -n 1 "$work/pg.log")"
  {
    printf "port = %s\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '%s'\nfsync = off\n" "$PGPORT" "$PGHOST"
    for setting in "$@"; do echo "${setting%%=*} = '${setting#*=}'"; done
  } | "${as[@]}" tee -a "$work/pg/data/postgresql.conf" >/dev/null
  "${as[@]}" pg_ctl -D "$work/pg/data" -l "$work/pg/log" -w start >>"$work/pg.log" 2>&1 ||
    fail "PostgreSQL did not start: $(tail -n 1 "$work/pg/log")"
  started+=("$(head -n 1 "$work/pg/data/postmaster.pid")")
}

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
