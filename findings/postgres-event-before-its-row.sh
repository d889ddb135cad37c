#!/usr/bin/env bash
# Expected: logical decoding sends what is committed, so who gets an event finds its row on the primary.
# Happens:  where commits wait for a synchronous standby, the event is sent before that: for as long as the standby is away, a SELECT on the
#           primary does not find the row, and an UPDATE changes none.
# Who:      consumers of change data capture that read the row back, or write an answer into it, while a standby is slow or restarts.
# Version:  PostgreSQL 15 and 18
# Date:     2026-11-29
. "$(dirname "$0")/lib.sh"

postgres wal_level=logical synchronous_standby_names=standby
need pg_recvlogical pg_receivewal
export PGOPTIONS="-c synchronous_commit=local" # of all sessions but the writer's
sql -c "CREATE TABLE outbox (id int PRIMARY KEY, payload text NOT NULL)" -c "CREATE PUBLICATION events FOR TABLE outbox"
sql -c "SELECT pg_create_logical_replication_slot('events', 'pgoutput')" >/dev/null

pg_recvlogical -d postgres -S events --start -o proto_version=1 -o publication_names=events -f "$work/events" --fsync-interval=0 2>"$work/stream.log" &
started+=($!)
PGOPTIONS='' sql -c "INSERT INTO outbox VALUES (1, 'order placed')" 2>"$work/writer.log" &
writer=$!
waits() { [ "$(sql -c "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")" = 1 ]; }
until_true 30 waits || fail "the commit does not wait: $(cat "$work/writer.log")"

sent() { grep -a -c 'order placed' "$work/events" || true; }
until_true 10 grep -qa 'order placed' "$work/events" || true
expect "events while the standby is away" 1 "$(sent)"
expect "rows that a SELECT finds on the primary" 0 "$(sql -c "SELECT count(*) FROM outbox")"
expect "rows that an UPDATE finds" 0 "$(sql -c "WITH found AS (UPDATE outbox SET payload = payload RETURNING 1) SELECT count(*) FROM found")"

mkdir "$work/standby"
PGAPPNAME=standby pg_receivewal -D "$work/standby" --synchronous 2>"$work/standby.log" &
started+=($!)
wait "$writer" || fail "the writer: $(cat "$work/writer.log")"
expect "rows once the standby is back" 1 "$(sql -c "SELECT count(*) FROM outbox")"
expect "events by then" 1 "$(sent)"
done_here
