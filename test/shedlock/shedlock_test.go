// Package shedlock tests package shedlock against the real library: an
// application in Java and outbox-cdc's Lock respect one another's hold, also when
// either is killed.
package shedlock

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

const soon = time.Minute

var relay = outbox.ShedLock{Schema: "public", Table: "shedlock", Name: "outbox-poller"}

// As the library's documentation has it.
const ddl = `CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL,
	locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))`

// holderDSN makes this test's program hold the lock until it is killed.
const holderDSN = "OUTBOX_TEST_SHEDLOCK_HOLDER"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(holderDSN); dsn != "" {
		if err := hold(dsn); err != nil {
			fmt.Println("not held:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func hold(dsn string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	l := shedlock.New(shedlock.Config{Pool: pool, Lock: relay, Holder: "outbox-cdc", AtMost: 3 * time.Second})
	if err := l.Acquire(ctx); err != nil {
		return err
	}
	fmt.Println("held")
	return l.Run(ctx)
}

// application is a Java process.
type application struct {
	*harness.Process
	t  *testing.T
	in io.Writer
}

// start starts an application whose own time zone is far from UTC.
func start(t *testing.T, db *harness.DB, clock string) *application {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Java programs")
	}
	cfg, err := pgx.ParseConfig(db.Own())
	if err != nil {
		t.Fatal(err)
	}
	jars := filepath.Join(harness.Jars(t, "pom.xml"), "*")
	url := fmt.Sprintf("jdbc:postgresql://%s:%d/%s?password=%s", cfg.Host, cfg.Port, cfg.Database, cfg.Password)
	cmd := exec.Command("java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-Duser.timezone=Asia/Tokyo", "-cp", jars, "Application.java", url, cfg.User, clock)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	a := &application{Process: harness.Start(t, cmd), t: t, in: in}
	a.Await(soon, "ready")
	return a
}

func (a *application) say(format string, args ...any) {
	a.t.Helper()
	if _, err := fmt.Fprintf(a.in, format+"\n", args...); err != nil {
		a.t.Fatal(err)
	}
}

// do gives a command and waits for its answer.
func (a *application) do(answer, format string, args ...any) {
	a.t.Helper()
	a.say(format, args...)
	a.Await(soon, answer)
}

func newLock(t *testing.T, db *harness.DB, atMost time.Duration, onChange ...func(shedlock.Holding)) *shedlock.Lock {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), db.Own())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	cfg := shedlock.Config{Pool: pool, Lock: relay, Holder: "outbox-cdc", AtMost: atMost, Log: zerolog.New(zerolog.NewTestWriter(t))}
	for _, f := range onChange {
		cfg.OnChange = f
	}
	return shedlock.New(cfg)
}

func acquire(t *testing.T, l *shedlock.Lock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := l.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
}

func column(t *testing.T, db *harness.DB, name string) time.Time {
	t.Helper()
	return harness.One[time.Time](t, db, "SELECT "+name+" FROM shedlock")
}

func takenAfter(t *testing.T, db *harness.DB, until time.Time) {
	t.Helper()
	if taken := column(t, db, "locked_at"); taken.Before(until) || taken.After(until.Add(30*time.Second)) {
		t.Fatalf("taken at %v, it was held until %v", taken, until)
	}
}

// Each waits for the other as holder, whichever clock the application uses, and
// each sees that the other extends. A killed application's hold is waited out.
func TestEachRespectsTheOther(t *testing.T) {
	for _, clock := range []string{"database", "own"} {
		t.Run(clock, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t)
			db.Exec(t, ddl)
			app := start(t, db, clock)
			var told atomic.Pointer[shedlock.Holding]
			ours := newLock(t, db, 0, func(h shedlock.Holding) { told.Store(&h) })

			app.do("locked", "try %s 60000", relay.Name)
			app.do("extended", "extend 120000")
			if held, err := ours.Try(t.Context()); held || err != nil {
				t.Fatal(held, err)
			}
			acquired := make(chan error, 1)
			go func() { acquired <- ours.Acquire(t.Context()) }()
			harness.Eventually(t, soon, func() error {
				if h := told.Load(); h == nil || h.By == "" || h.Ours || time.Until(h.Until) < 110*time.Second || time.Until(h.Until) > 121*time.Second {
					return fmt.Errorf("%+v", h)
				}
				return nil
			})
			app.do("unlocked", "unlock")
			if err := <-acquired; err != nil {
				t.Fatal(err)
			}

			app.do("refused", "try %s 1000", relay.Name)
			if err := ours.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			app.do("refused", "try %s 1000", relay.Name)
			app.say("wait %s 60000", relay.Name)
			if err := ours.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			app.Await(soon, "locked")
			if err := ours.Extend(t.Context()); err == nil {
				t.Fatal("extended the application's hold")
			}

			// The application is killed: we take the lock once its time has
			// passed, and not before.
			app.do("extended", "extend 2500")
			until := column(t, db, "lock_until")
			app.Kill()
			acquire(t, ours)
			takenAfter(t, db, until)
		})
	}
}

// We are killed while we hold and extend the lock: the application takes it
// once our time has passed, which is a few seconds. Then both work under the
// lock again and again, and never at once.
func TestAHolderThatIsKilledAndTwoThatWork(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, ddl+`; CREATE TABLE work (id bigserial PRIMARY KEY, who text, what text)`)
	app := start(t, db, "database")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderDSN+"="+db.DSN)
	ours := harness.Start(t, cmd)
	ours.Await(soon, "held")
	first := column(t, db, "lock_until")
	harness.Eventually(t, soon, func() error { // it extends
		app.do("refused", "try %s 60000", relay.Name)
		if until := column(t, db, "lock_until"); !until.After(first.Add(time.Second)) {
			return fmt.Errorf("held until %v", until)
		}
		return nil
	})
	ours.Kill()
	until := column(t, db, "lock_until")
	app.do("locked", "wait %s 60000", relay.Name)
	takenAfter(t, db, until)
	app.do("unlocked", "unlock")
	workTogether(t, db, app)
}

func workTogether(t *testing.T, db *harness.DB, app *application) {
	t.Helper()
	const times = 20
	ours := newLock(t, db, 0)
	app.say("work %s %d", relay.Name, times)
	for done := 0; done < times; {
		held, err := ours.While(t.Context(), func(context.Context) error {
			db.Exec(t, `INSERT INTO work (who, what) VALUES ('ours', 'begin')`)
			db.Exec(t, `INSERT INTO work (who, what) VALUES ('ours', 'end')`)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if held {
			done++
		}
	}
	app.Await(soon, "worked")
	if n := harness.One[int](t, db, `SELECT count(*) FROM work`); n != 4*times {
		t.Fatalf("%d of %d", n, 4*times)
	}
	if n := harness.One[int](t, db, `SELECT count(*) FROM (SELECT who, what, lead(who) OVER w AS then_who, lead(what) OVER w AS then_what
		FROM work WINDOW w AS (ORDER BY id)) s WHERE what = 'begin' AND (then_who <> who OR then_what <> 'end')`); n != 0 {
		t.Fatalf("%d times both were at work", n)
	}
}
