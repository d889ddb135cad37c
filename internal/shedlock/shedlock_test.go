package shedlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The server that tests share lives as long as their process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/outbox-cdc/outbox-cdc/internal/localpg.(*process).wait"),
		// The proxy forgets a connection that ends while it is being silenced.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

// The table as the library's documentation has it, and as older ones are.
const (
	ddlNow = `CREATE TABLE shedlock (name varchar(64) NOT NULL PRIMARY KEY, lock_until timestamp NOT NULL,
		locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)`
	ddlOld   = `CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp(3), locked_at timestamp(3), locked_by varchar(12))`
	ddlZoned = `CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamptz(3), locked_at timestamptz(3), locked_by text)`
)

var relay = outbox.ShedLock{Schema: "public", Table: "shedlock", Name: "outbox-poller"}

func database(t testing.TB, ddl string) *harness.DB {
	t.Helper()
	db := harness.Postgres(t)
	db.Exec(t, ddl)
	return db
}

func newPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.Background(), dsn+"&connect_timeout=2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// news collects what OnChange was told.
type news struct {
	mu  sync.Mutex
	all []Holding
}

func (n *news) told(h Holding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, h)
}

func (n *news) holders() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var by []string
	for _, h := range n.all {
		if h.Ours {
			by = append(by, "ours")
		} else {
			by = append(by, h.By)
		}
	}
	return strings.Join(by, ",")
}

func newLock(t testing.TB, pool *pgxpool.Pool, atMost time.Duration) (*Lock, *news) {
	t.Helper()
	n := &news{}
	return New(Config{
		Pool: pool, Lock: relay, Holder: "outbox-cdc orders@host", AtMost: atMost, OnChange: n.told,
		Log: zerolog.New(zerolog.NewTestWriter(t)),
	}), n
}

func try(t *testing.T, l *Lock, want bool) {
	t.Helper()
	if held, err := l.Try(t.Context()); err != nil || held != want {
		t.Fatalf("held %v, err %v", held, err)
	}
}

func TestALockIsTakenExtendedAndGivenBack(t *testing.T) {
	for name, ddl := range map[string]string{"as documented": ddlNow, "old": ddlOld, "with time zone": ddlZoned} {
		t.Run(name, func(t *testing.T) {
			db := database(t, ddl)
			db.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET TimeZone = ''Asia/Tokyo''', current_database()); END $$`)
			ours, told := newLock(t, newPool(t, db.DSN), 0)
			other, _ := newLock(t, newPool(t, db.DSN+"&default_query_exec_mode=exec"), 0) // as behind a pooler
			before := time.Now()
			try(t, ours, true)
			try(t, other, false)
			if until := ours.Until(); until.Before(before.Add(MostAhead-time.Millisecond)) || until.After(time.Now().Add(MostAhead)) {
				t.Fatal(until)
			}
			if !other.Until().IsZero() {
				t.Fatal("not held")
			}
			left := harness.One[float64](t, db, `SELECT extract(epoch FROM lock_until)::float8 - extract(epoch FROM locked_at)::float8 FROM shedlock`)
			if left != MostAhead.Seconds() {
				t.Fatal(left)
			}
			first := ours.Until()
			if err := ours.Extend(t.Context()); err != nil || !ours.Until().After(first) {
				t.Fatal(err, ours.Until())
			}
			if err := ours.Release(t.Context()); err != nil || !ours.Until().IsZero() {
				t.Fatal(err)
			}
			if err := other.Acquire(t.Context()); err != nil { // a rounded time of giving back may lie ahead
				t.Fatal(err)
			}
			if err := ours.Extend(t.Context()); !errors.Is(err, ErrLost) {
				t.Fatal(err)
			}
			if err := ours.Release(t.Context()); err != nil { // no word on the other's row
				t.Fatal(err)
			}
			try(t, ours, false)
			if got := told.holders(); got != "ours,," {
				t.Fatal(got)
			}
		})
	}
}

// The lock's table is the application's, and its trigger runs in a session of ours.
func TestWhatTheTablesTriggerLeavesIsCleaned(t *testing.T) {
	db := database(t, ddlNow)
	db.Exec(t, `CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(4713); RETURN NEW; END $$;
		CREATE TRIGGER audit BEFORE INSERT OR UPDATE ON shedlock FOR EACH ROW EXECUTE FUNCTION audit()`)
	pool, err := postgres.Access{DSN: db.DSN}.Pool(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l, _ := newLock(t, pool, 0)
	try(t, l, true)
	db.Exec(t, `SET lock_timeout = '20s'; SELECT pg_advisory_lock(4713), pg_advisory_unlock(4713)`)
}

func TestAcquireWaitsAndTellsForWhom(t *testing.T) {
	db := database(t, ddlNow)
	pool := newPool(t, db.DSN)
	db.Exec(t, `INSERT INTO shedlock VALUES ('outbox-poller', timezone('utc', now()) + interval '1 hour', timezone('utc', now()), E'app\n7')`)
	ours, told := newLock(t, pool, 0)
	done := make(chan error, 1)
	go func() { done <- ours.Acquire(t.Context()) }()
	harness.Eventually(t, 20*time.Second, func() error {
		ours.mu.Lock()
		h := ours.holding
		ours.mu.Unlock()
		if h.By != "app\uFFFD7" || h.Ours || time.Until(h.Until) < 59*time.Minute || time.Until(h.Until) > time.Hour {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
	db.Exec(t, `UPDATE shedlock SET lock_until = timezone('utc', now())`)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := told.holders(); got != "app\uFFFD7,ours" {
		t.Fatal(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting, _ := newLock(t, pool, 0)
	go func() { done <- waiting.Acquire(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// While it runs the lock stays for longer than it is ever held ahead; it is
// lost when somebody takes the row, and when the database is not to be reached.
func TestRun(t *testing.T) {
	db := database(t, ddlNow)
	through, proxy := db.Proxied(t)
	const atMost = 3 * time.Second // longer than a busy machine keeps it from extending
	ours, _ := newLock(t, newPool(t, through.DSN), atMost)
	other, _ := newLock(t, newPool(t, db.DSN), atMost)
	run := func(ctx context.Context) chan error {
		try(t, ours, true)
		done := make(chan error, 1)
		go func() { done <- ours.Run(ctx) }()
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := run(ctx)
	first := ours.Until()
	harness.Eventually(t, 20*time.Second, func() error {
		if !ours.Until().After(first.Add(atMost)) {
			return fmt.Errorf("until %v", ours.Until())
		}
		return nil
	})
	try(t, other, false)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || ours.Until().IsZero() {
		t.Fatal(err)
	}
	if err := ours.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	done = run(t.Context())
	db.Exec(t, `UPDATE shedlock SET locked_by = 'thief'`)
	if err := <-done; !errors.Is(err, ErrLost) || !ours.Until().IsZero() {
		t.Fatal(err)
	}
	db.Exec(t, `DELETE FROM shedlock`)

	done = run(t.Context())
	proxy.Silence(harness.Requests)
	defer proxy.Speak()
	last := ours.Until()
	if err := <-done; !errors.Is(err, ErrLost) || time.Since(last) > 20*time.Second {
		t.Fatal(err)
	}
	harness.Eventually(t, 20*time.Second, func() error {
		if held, err := other.Try(t.Context()); !held || err != nil {
			return fmt.Errorf("held %v %v", held, err)
		}
		return nil
	})
}

// A connection that has died without a word is replaced in time.
func TestAnExtensionThatHangs(t *testing.T) {
	db := database(t, ddlNow)
	through, proxy := db.Proxied(t)
	ours, _ := newLock(t, newPool(t, through.DSN), 6*time.Second)
	try(t, ours, true)
	until := ours.Until()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ours.Run(ctx) }()
	proxy.Silence(harness.Replies)
	harness.Eventually(t, 20*time.Second, func() error {
		if left := time.Until(until); left > 3*time.Second {
			return fmt.Errorf("%v left", left)
		}
		return nil
	})
	proxy.Speak()
	harness.Eventually(t, 20*time.Second, func() error {
		if !ours.Until().After(until) {
			return errors.New("not extended")
		}
		return nil
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestWhile(t *testing.T) {
	db := database(t, ddlNow)
	pool := newPool(t, db.DSN)
	ours, _ := newLock(t, pool, 3*time.Second)
	other, _ := newLock(t, pool, 0)
	broken := errors.New("broken")
	held, err := ours.While(t.Context(), func(ctx context.Context) error {
		first := ours.Until()
		harness.Eventually(t, 20*time.Second, func() error {
			if !ours.Until().After(first) {
				return errors.New("not extended")
			}
			return ctx.Err()
		})
		held, err := other.While(ctx, func(context.Context) error { t.Error("both work"); return nil })
		if held || err != nil {
			t.Error(held, err)
		}
		return broken
	})
	if !held || err == nil || !errors.Is(err, broken) || errors.Is(err, context.Canceled) {
		t.Fatal(held, err)
	}
	held, err = ours.While(t.Context(), func(ctx context.Context) error {
		db.Exec(t, `DELETE FROM shedlock`)
		<-ctx.Done()
		return nil
	})
	if !held || !errors.Is(err, ErrLost) {
		t.Fatal(held, err)
	}
	try(t, other, true)
}

func TestTablesThatCannotServe(t *testing.T) {
	for ddl, want := range map[string]string{
		`SELECT 1`: "does not exist",
		`CREATE TABLE shedlock (name text, lock_until timestamp)`:                                                        "no column locked_at, locked_by",
		`CREATE TABLE shedlock (name text, lock_until timestamp, locked_at timestamp, locked_by text)`:                   "no unique index",
		`CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamptz, locked_at timestamp, locked_by text)`:     "make both alike",
		`CREATE TABLE shedlock (name varchar(5) PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by text)`: "too long",
	} {
		db := database(t, ddl)
		l, _ := newLock(t, newPool(t, db.DSN), 0)
		if err := l.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ddl, err)
		}
	}
}

func TestAMissingPrivilegeIsNamed(t *testing.T) {
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, ddlNow)
	db.Exec(t, `CREATE ROLE app LOGIN PASSWORD 'p'; GRANT SELECT, UPDATE ON shedlock TO app`)
	l, _ := newLock(t, newPool(t, db.Server.DSNAs(db.Name, "app", "p")), 0)
	err := l.Acquire(t.Context())
	if err == nil || !strings.Contains(err.Error(), `GRANT SELECT, INSERT, UPDATE ON "public"."shedlock" TO "app"`) {
		t.Fatal(err)
	}
	db.Exec(t, `GRANT INSERT ON shedlock TO app`)
	try(t, l, true)
	db.Exec(t, `REVOKE UPDATE ON shedlock FROM app`)
	if err := l.Extend(t.Context()); err == nil || !strings.Contains(err.Error(), "GRANT") {
		t.Fatal(err)
	}
}

// Rows that the library never writes: who waits is told, and nothing else
// happens.
func TestStrangeRows(t *testing.T) {
	for values, want := range map[string]string{
		`NULL, NULL, NULL`:                                  "somebody without a name: the lock's lock_until is NULL",
		`'infinity', '-infinity', ''`:                       "somebody without a name: the lock is held for ever",
		`'294276-01-01', '4713-01-01 BC', repeat('x', 300)`: strings.Repeat("x", 255) + ": the lock is held for ever",
		`timezone('utc', now()) + interval '3 h', timezone('utc', now()) + interval '2 h 50 s', 'zürich'`:      "zürich: the lock was taken 2h0m",
		`timezone('utc', now()) + interval '1 min', timezone('utc', now()) - interval '1 min', E'\x1b[31mred'`: "\uFFFD[31mred: ",
	} {
		db := database(t, `CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by text)`)
		db.Exec(t, `INSERT INTO shedlock VALUES ('outbox-poller', `+values+`)`)
		l, _ := newLock(t, newPool(t, db.DSN), 0)
		try(t, l, false)
		tb, err := l.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var r row
		if err := l.cfg.Pool.QueryRow(t.Context(), tb.Holder, relay.Name).Scan(&r.by, &r.remaining, &r.age); err != nil {
			t.Fatal(values, err)
		}
		if got := r.holding(outbox.ShedLock{}, time.Now()).By + ": " + r.suspicion(); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", values, got)
		}
	}
}

func TestHoldersAreCutAtTheirFront(t *testing.T) {
	for _, c := range []struct {
		in    string
		chars int
		want  string
	}{{"abc", 0, "abc"}, {"abc", 3, "abc"}, {"übc", 2, "bc"}, {"abü", 1, "ü"}} {
		if got := (&table{chars: c.chars}).fit(c.in); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzRow(f *testing.F) {
	f.Add("app", true, 1.5, true, -3.0, true)
	f.Add("\x00\xff\u202e", true, 1e308, true, -1e308, false)
	f.Add("", false, 0.0, false, 0.0, true)
	now := time.Unix(1_700_000_000, 0)
	f.Fuzz(func(t *testing.T, by string, named bool, remaining float64, ends bool, age float64, taken bool) {
		r := row{}
		if named {
			r.by = &by
		}
		if ends {
			r.remaining = &remaining
		}
		if taken {
			r.age = &age
		}
		h := r.holding(outbox.ShedLock{}, now)
		if h.By == "" || len([]rune(h.By)) > holderMax || strings.ContainsAny(h.By, "\x00\n\x1b") {
			t.Fatalf("%q", h.By)
		}
		if !h.Until.IsZero() && (h.Until.After(now.Add(forever)) || h.Until.Before(now.Add(-forever))) {
			t.Fatal(h.Until)
		}
		_ = r.suspicion()
	})
}
