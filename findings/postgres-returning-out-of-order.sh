#!/usr/bin/env bash
# Expected: UPDATE … WHERE id IN (SELECT id … ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED) RETURNING gives the rows in the subquery's order, at
#           least without other sessions, and if it did so in every test.
# Happens:  it does while the table is small and is read as a whole. With more rows the same statement goes by a hash of the ids, and the batch
#           comes mixed: events of one key leave in the wrong order. A last step that sorts (WITH … SELECT … ORDER BY) is in order.
# Who:      outbox relays and job queues that hand on what RETURNING gives.
# Version:  PostgreSQL 15 and 18
# Date:     2026-11-29
. "$(dirname "$0")/lib.sh"

postgres autovacuum=off
sql -c "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text NOT NULL DEFAULT 'PENDING', payload text)" \
  -c "CREATE INDEX ON outbox (id) WHERE status = 'PENDING'"

claim="UPDATE outbox SET status = 'SENT' WHERE id IN (SELECT id FROM outbox WHERE status = 'PENDING' ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED) RETURNING id"
# order STATEMENT: do its ids come in order?
order() {
  sql -c "$1" >"$work/ids"
  [ "$(wc -l <"$work/ids")" = 10 ] || fail "a batch of $(wc -l <"$work/ids")"
  if sort -n -c "$work/ids" 2>/dev/null; then echo yes; else echo no; fi
}

sql -c "INSERT INTO outbox (payload) SELECT 'x' FROM generate_series(1, 1000)" -c "VACUUM ANALYZE outbox"
expect "in order, of 1,000 rows" yes "$(order "$claim")"
sql -c "INSERT INTO outbox (payload) SELECT 'x' FROM generate_series(1, 100000)" -c "VACUUM ANALYZE outbox"
expect "in order, of 100,000 rows" no "$(order "$claim")"
tr '\n' ' ' <"$work/ids"
echo
expect "in order, sorted at the end" yes "$(order "WITH claimed AS ($claim) SELECT id FROM claimed ORDER BY id")"
done_here
