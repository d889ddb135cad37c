package replication

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// BenchmarkReceive reads waiting rows of 256 bytes from a real server. It reports how its rate compares with
// the limit, which is the rate at which the server itself decodes the same rows. OUTBOX_BENCH_ROWS sets the
// number of rows; default 200,000.
func BenchmarkReceive(b *testing.B) {
	rows := 200_000
	if n, err := strconv.Atoi(os.Getenv("OUTBOX_BENCH_ROWS")); err == nil {
		rows = n
	}
	for _, gather := range []bool{true, false} {
		b.Run(fmt.Sprintf("gather=%v", gather), func(b *testing.B) {
			for range b.N {
				receiveAll(b, rows, gather)
			}
		})
	}
}

func receiveAll(b *testing.B, rows int, gather bool) {
	db := harness.Postgres(b)
	slot := "s_" + db.Name
	slot = slot[:min(63, len(slot))]
	db.Exec(b, `CREATE TABLE public.outbox (id bigint PRIMARY KEY, topic text, payload text)`)
	db.Exec(b, `CREATE PUBLICATION pub FOR TABLE public.outbox WITH (publish = 'insert')`)
	db.Exec(b, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)
	for done := 0; done < rows; done += 1000 {
		db.Exec(b, `INSERT INTO public.outbox SELECT i, 'topic', repeat('x', 256) FROM generate_series($1::int, $1::int + 999) i`, done)
	}
	began := time.Now()
	peeked := harness.One[int64](b, db, `SELECT count(*) FROM pg_logical_slot_peek_binary_changes('`+slot+`', NULL, NULL, 'proto_version', '1', 'publication_names', 'pub')`)
	server := time.Since(began)

	c, err := Lead(context.Background(), Config{DSN: db.DSN, Slot: slot, Publication: "pub"})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Kill()
	if _, err := c.Inspect(context.Background()); err != nil {
		b.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	c.socket.pauses = gather
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	began = time.Now()
	for n := 0; n < rows; {
		m, err := c.Receive(time.Now().Add(time.Second))
		if err != nil {
			b.Fatal(err)
		}
		if m.Kind == Data && m.Data[0] == 'I' {
			n++
		}
		if m.ReplyRequested || n%10_000 == 0 {
			if err := c.SendStatus(0); err != nil {
				b.Fatal(err)
			}
		}
	}
	took := time.Since(began)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(rows)/took.Seconds(), "rows/s")
	b.ReportMetric(server.Seconds()/took.Seconds(), "of-server")
	b.ReportMetric(cpu.Seconds()*1e6/float64(rows), "cpu-s/Mrow")
	if peeked < int64(rows) {
		b.Fatalf("%d changes of %d rows", peeked, rows)
	}
}
