package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

const patience = time.Minute

// bench is a database with an outbox table. Its slot's name is unique on the server.
type bench struct {
	*harness.DB
	cfg   Config
	setup Setup
}

func onBench(t *testing.T, db *harness.DB) *bench {
	t.Helper()
	db.Exec(t, `CREATE TABLE public.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text, payload text, status text DEFAULT 'PENDING')`)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
		Status: outbox.StatusMapping{Column: "status"}, Published: outbox.PublishedStatus,
	}}
	slot := "s_" + db.Name
	cfg := Config{
		DSN: db.DSN, Slot: slot[:min(63, len(slot))], Publication: "pub", Tables: []*outbox.Table{table},
		SenderTimeout: 6 * time.Second, StandbyPoll: 50 * time.Millisecond,
	}
	return &bench{DB: db, cfg: cfg, setup: Setup{Config: cfg, Stream: "orders"}}
}

func newBench(t *testing.T) *bench { t.Helper(); return onBench(t, harness.Postgres(t)) }

// init makes publication and slot as the command init does.
func (b *bench) init(t *testing.T) *bench {
	t.Helper()
	pg := b.Conn(t).PgConn()
	state, err := Inspect(t.Context(), pg, b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := InitPlan(&state, b.setup)
	if err != nil {
		t.Fatal(err)
	}
	if err := Apply(t.Context(), pg, b.setup, plan, Progress{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) lead(t *testing.T) *Conn {
	t.Helper()
	c, err := Lead(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	return c
}

func (b *bench) stream(t *testing.T) *Conn {
	t.Helper()
	c := b.lead(t)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bench) insert(t *testing.T, rows int) {
	t.Helper()
	b.Exec(t, `INSERT INTO public.outbox (topic, payload) SELECT 't', repeat('x', 200) FROM generate_series(1, $1)`, rows)
}

func (b *bench) judge(t *testing.T, c *Conn, known Identity) (State, Verdict) {
	t.Helper()
	s, err := c.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, Judge(&s, &b.cfg, known)
}

// receive collects data frames until there are n inserts. It answers keepalives.
func receive(t *testing.T, c *Conn, n int) (last outbox.LSN) {
	t.Helper()
	end := time.Now().Add(patience)
	for n > 0 {
		m := next(t, c, end)
		if m.Kind == Data && m.Data[0] == 'I' {
			n--
			last = m.WALStart
		}
	}
	return last
}

func next(t *testing.T, c *Conn, end time.Time) Message {
	t.Helper()
	for {
		m, err := c.Receive(time.Now().Add(200 * time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == Idle || m.ReplyRequested {
			if err := c.SendStatus(0); err != nil {
				t.Fatal(err)
			}
		}
		if m.Kind != Idle {
			return m
		}
		if time.Now().After(end) {
			t.Fatal("nothing more is received")
		}
	}
}

// failing receives until the stream ends with an error.
func failing(t *testing.T, c *Conn) error {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		m, err := c.Receive(time.Now().Add(200 * time.Millisecond))
		if err != nil {
			return err
		}
		if m.Kind == Idle || m.ReplyRequested {
			if err := c.SendStatus(0); err != nil {
				return err
			}
		}
	}
	t.Fatal("the stream goes on")
	return nil
}

func (b *bench) confirmed(t *testing.T) outbox.LSN {
	t.Helper()
	l, err := outbox.ParseLSN(harness.One[string](t, b.DB, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestStreamsConfirmsAndStops(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	b.insert(t, 1000)
	c := b.stream(t)
	if c.socket.buf != nil {
		t.Error("the buffer of the session's start is kept beside that of the stream")
	}
	first := receive(t, c, 1000)
	if m := next(t, c, time.Now().Add(patience)); m.Kind != Data || m.Data[0] != 'C' {
		t.Fatalf("after the rows comes %+v", m)
	}
	if err := c.SendStatus(first); err != nil {
		t.Fatal(err)
	}
	if err := c.SendStatus(first - 8); err != nil || c.Confirmed() != first {
		t.Errorf("the position goes back to %v: %v", c.Confirmed(), err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.confirmed(t); got != first {
		t.Errorf("confirmed %v, sent %v", got, first)
	}
	// This process still leads. The transaction was not confirmed as a whole, so it comes again.
	if err := c.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("a second start: %v", err)
	}
	c.Close(t.Context())
	second := b.stream(t)
	if last := receive(t, second, 1000); last != first {
		t.Errorf("the second time the last row is at %v, not %v", last, first)
	}
	if _, err := c.Receive(time.Now()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSecondLeaderWaitsAndTakesOver(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	b.cfg.Name, b.cfg.SenderTimeout = "outbox-cdc/first", time.Minute
	c := b.stream(t)
	told := make(chan Holder, 10)
	second := b.cfg
	second.Standby = func(h Holder) { told <- h }
	led := make(chan *Conn, 1)
	go func() {
		c, err := Lead(t.Context(), second)
		if err != nil {
			t.Error(err)
		}
		led <- c
	}()
	if h := <-told; h.PID != fmt.Sprint(c.PID()) || h.Name != "outbox-cdc/first" {
		t.Errorf("told of %+v", h)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	c.Close(t.Context())
	successor := <-led
	if took := time.Since(left); took > b.cfg.SenderTimeout/3 { // the server learns of the end at once, not by a timeout
		t.Errorf("takeover took %v", took)
	}
	defer successor.Kill()
	if err := successor.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	b.lead(t)
	ctx, cancel := context.WithCancel(t.Context())
	second := b.cfg
	second.Standby = func(Holder) { cancel() }
	if c, err := Lead(ctx, second); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", c, err)
	}
}

// A leader that is cut off or stopped is replaced, although it never closed its session. This holds while it
// streams and while it does not.
func TestHalfOpenLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	for name, streaming := range map[string]bool{"streaming": true, "idle": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t).init(t)
			through, proxy := b.Proxied(t)
			cut := b.cfg
			cut.DSN = through.DSN
			c, err := Lead(t.Context(), cut)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Kill)
			if streaming {
				if err := c.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			proxy.Silence(harness.Requests, harness.Replies)
			began := time.Now()
			successor := b.lead(t)
			if took := time.Since(began); took > b.cfg.SenderTimeout+20*time.Second {
				t.Errorf("takeover took %v", took)
			}
			if err := successor.Start(t.Context()); err != nil {
				t.Error(err)
			}
			if !streaming {
				return
			}
			// The old leader finds out by itself.
			if err := failing(t, c); !errors.Is(err, ErrClosed) {
				t.Errorf("the old leader: %v", err)
			}
		})
	}
}

func TestPositionsOnlyMoveByStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	before := b.confirmed(t)
	b.insert(t, 10)
	c := b.stream(t)
	receive(t, c, 10)
	// The leader stays alive for longer than the server's timeout while it neither reads nor confirms, as in
	// mode HOLD.
	for end := time.Now().Add(2 * b.cfg.SenderTimeout); time.Now().Before(end); {
		if err := c.SendStatus(0); err != nil {
			t.Fatal(err)
		}
		b.insert(t, 1)
	}
	if got := b.confirmed(t); got != before {
		t.Errorf("confirmed %v without being told, was %v", got, before)
	}
	at, err := Heartbeat(t.Context(), postgres.On(b.Conn(t)))
	if err != nil {
		t.Fatal(err)
	}
	// An idle table in a busy cluster: keepalives bring positions that can be confirmed.
	end := time.Now().Add(patience)
	for {
		if m := next(t, c, end); m.Kind == Keepalive && m.WALEnd >= at {
			if err := c.SendStatus(m.WALEnd); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	harness.Eventually(t, patience, func() error {
		if got := b.confirmed(t); got < at {
			return fmt.Errorf("confirmed %v, the heartbeat is at %v", got, at)
		}
		return nil
	})
}

func TestWakeEndsReceive(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	c := b.stream(t)
	for range 20 {
		done := make(chan error, 1)
		go func() {
			for {
				m, err := c.Receive(time.Now().Add(time.Hour))
				if err != nil || m.Kind == Idle {
					done <- err
					return
				}
			}
		}()
		c.Wake()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("Receive sleeps on")
		}
	}
	b.insert(t, 3)
	receive(t, c, 3)
	done := make(chan error, 1)
	go func() { done <- failing(t, c) }()
	c.Kill()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("after Kill: %v", err)
	}
}

func TestActiveSlotIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	// Another consumer, which does not know our lock.
	pc, err := pgconn.ParseConfig(b.Own())
	if err != nil {
		t.Fatal(err)
	}
	pc.RuntimeParams["replication"] = "database"
	other, err := pgconn.ConnectConfig(t.Context(), pc)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	if err := pglogrepl.StartReplication(t.Context(), other, b.cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + b.cfg.Publication + "'"},
	}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, patience, func() error {
		if !harness.One[bool](t, b.DB, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot) {
			return errors.New("not active yet")
		}
		return nil
	})
	c := b.lead(t)
	if err := c.Start(t.Context()); !errors.Is(err, ErrSlotActive) {
		t.Fatalf("%v", err)
	}
	if _, err := c.MakeSlot(t.Context(), Remake, time.Second); !errors.Is(err, ErrSlotActive) {
		t.Errorf("an active slot is dropped: %v", err)
	}
	s, v := b.judge(t, c, Identity{})
	if !s.Slot.Active || s.Slot.ActivePID != fmt.Sprint(other.PID()) {
		t.Errorf("slot %+v", s.Slot)
	}
	if v.Err != nil {
		t.Errorf("an active slot is fatal: %v", v.Err)
	}
	if err := c.Beat(t.Context()); err != nil {
		t.Errorf("leadership after a refused start: %v", err)
	}
}

func TestInitIsIdempotentAndDestroyUndoesIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setup.Tally = true
	b.init(t).init(t)
	plan, err := InitPlan(&State{}, b.setup)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := Pending(t.Context(), b.Conn(t).PgConn(), plan); err != nil || len(left) != 0 {
		t.Errorf("left to do: %s, %v", Script(left), err)
	}
	c := b.lead(t)
	s, v := b.judge(t, c, Identity{})
	if v.Sound || v.Cause != outbox.CauseSlot || v.Slot != Keep || v.Publication != Keep || v.Err != nil || len(v.Tables) != 0 || len(v.Warnings) != 0 {
		t.Errorf("a new slot: %+v", v)
	}
	known := Identify(&s, &b.cfg)
	if _, v := b.judge(t, c, known); !v.Sound {
		t.Errorf("a known slot: %s", v.Reason)
	}
	if s.SystemID == "" || s.Timeline != 1 || s.Insert == 0 || s.Snapshot.Xmax == 0 || !s.Publication.Ours || !s.Schema || !s.Tally {
		t.Errorf("state %+v", s)
	}
	c.Close(t.Context())

	// There is another table now. init adds it to the publication.
	b.Exec(t, `CREATE TABLE public.second (id bigint PRIMARY KEY, payload text, status text)`)
	second := &outbox.Table{Schema: "public", Name: "second", Mapping: b.cfg.Tables[0].Mapping}
	b.cfg.Tables = append(b.cfg.Tables, second)
	b.setup.Tables = b.cfg.Tables
	c = b.lead(t)
	if _, v := b.judge(t, c, known); !v.Sound || len(v.Add) != 1 || v.Add[0] != second || len(v.Tables) != 1 {
		t.Errorf("with a second table: %+v", v)
	}
	if err := MakePublication(t.Context(), b.Conn(t).PgConn(), b.cfg); err != nil {
		t.Fatal(err)
	}
	state, v := b.judge(t, c, known)
	if !v.Sound || len(v.Add) != 0 || len(v.Tables) != 0 {
		t.Errorf("after adding it: %+v", v)
	}
	if got := state.Tables[1].Columns; strings.Join(got, ",") != "id,payload,status" && state.Version >= 150000 {
		t.Errorf("columns %v", got)
	}
	c.Close(t.Context())

	pg := b.Conn(t).PgConn()
	if plan, err = DestroyPlan(&state, b.setup); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, patience, func() error { return Apply(t.Context(), pg, b.setup, plan, Progress{}) })
	left := harness.One[int64](t, b.DB, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1)
		+ (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_namespace WHERE nspname = 'outbox_cdc')`, b.cfg.Slot)
	if left != 0 {
		t.Errorf("%d things are left", left)
	}
}

// The lock under the guard's key exists exactly as long as the leader's session.
func TestGuardEndsWithTheSession(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	c := b.lead(t)
	key, err := c.Guard(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if other, err := c.Guard(t.Context()); err != nil || other == key {
		t.Errorf("the key is given out again: %v", err)
	}
	held := func() bool { return !harness.One[bool](t, b.DB, "SELECT pg_try_advisory_xact_lock_shared($1)", key) }
	if !held() {
		t.Error("the lock is not seen by another session")
	}
	b.Exec(t, "SELECT pg_terminate_backend($1)", c.PID())
	harness.Eventually(t, patience, func() error {
		if held() {
			return errors.New("the session's lock is still there")
		}
		return nil
	})
}

// The script that --show-sql prints does the same as init if it is pasted unchanged.
func TestScriptDoesWhatInitDoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	plan, err := InitPlan(&State{}, b.setup)
	if err != nil {
		t.Fatal(err)
	}
	script := Script(plan)
	for _, step := range plan {
		b.Exec(t, step.SQL)
	}
	if !strings.Contains(script, "CREATE PUBLICATION") || strings.Contains(script, "$1") {
		t.Errorf("script:\n%s", script)
	}
	c := b.lead(t)
	if s, _ := b.judge(t, c, Identity{}); !s.Slot.Exists || !s.Publication.Ours {
		t.Errorf("state %+v", s)
	}
	if _, v := b.judge(t, c, Identity{}); v.Slot != Keep || v.Publication != Keep {
		t.Errorf("verdict %+v", v)
	}
}

// Mapped columns have the numbers that they keep under another name; one that is not there has none.
func TestMappedColumnsHaveTheirNumbers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(t, `CREATE TABLE numbered (a int, b int, c int, d int); ALTER TABLE numbered DROP b; ALTER TABLE numbered RENAME c TO e`)
	cfg := b.cfg
	cfg.Tables = []*outbox.Table{{Schema: "public", Name: "numbered", Mapping: outbox.Mapping{ID: []string{"a", "b", "c", "e"}}}}
	state, err := Inspect(t.Context(), b.Conn(t).PgConn(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := state.Tables[0].Numbers; !maps.Equal(got, map[string]uint32{"a": 1, "b": 0, "c": 0, "e": 3}) {
		t.Errorf("numbers %v", got)
	}
}

func TestTablesAreInspectedTogetherAndToldApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(t, `CREATE SCHEMA "o'dd"; CREATE TABLE "o'dd"."Out""box" (id int PRIMARY KEY);
		CREATE UNLOGGED TABLE unlogged (id int);
		CREATE TABLE parted (id int) PARTITION BY RANGE (id);
		CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (10);
		CREATE TABLE rest PARTITION OF parted DEFAULT;
		CREATE TABLE "Child" (extra text) INHERITS (unlogged);
		CREATE PUBLICATION pub FOR TABLE "o'dd"."Out""box", part;
		CREATE PUBLICATION other FOR TABLE public.outbox`)
	named := func(schema, name string) *outbox.Table { return &outbox.Table{Schema: schema, Name: name} }
	cfg := b.cfg
	cfg.Tables = []*outbox.Table{
		named("public", "gone"), named("public", "unlogged"), named("o'dd", `Out"box`),
		named("public", "part"), named("public", "parted"), named("public", "outbox"),
	}
	state, err := Inspect(t.Context(), b.Conn(t).PgConn(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var got []TableState
	for _, s := range state.Tables {
		s.Columns = nil // versions before 15 have no column lists
		if s.Exists != (s.OID != 0) {
			t.Errorf("table %s: exists %v, relation %d", s.Table, s.Exists, s.OID)
		}
		s.OID, s.Numbers = 0, nil
		got = append(got, s)
	}
	want := []TableState{
		{},
		{Exists: true, Kind: "r", Unlogged: true, Children: `public."Child"`},
		{Exists: true, Kind: "r", Published: true},
		{Exists: true, Kind: "r", PartitionOf: "public.parted", Published: true},
		{Exists: true, Kind: "p", PublishedPartitions: 1},
		{Exists: true, Kind: "r"},
	}
	for i, table := range cfg.Tables {
		want[i].Table = table
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("inspected:\n%+v, want\n%+v", got, want)
	}
}

func TestForeignThingsAreNotAltered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(t, `CREATE TABLE public.other (id int PRIMARY KEY)`)
	b.Exec(t, `CREATE PUBLICATION pub FOR TABLE public.other`)
	pg := b.Conn(t).PgConn()
	var e *postgres.Error
	err := MakePublication(t.Context(), pg, b.cfg)
	if !errors.As(err, &e) || !e.Permanent || e.Hint != `ALTER PUBLICATION "pub" ADD TABLE "public"."outbox";` {
		t.Errorf("%v", err)
	}
	state, err := Inspect(t.Context(), pg, b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := DestroyPlan(&state, b.setup)
	if err != nil || len(plan) != 0 {
		t.Errorf("destroy would do %v, %v", plan, err)
	}
	b.Exec(t, `SELECT pg_create_physical_replication_slot('`+b.cfg.Slot+`')`)
	defer b.Exec(t, `SELECT pg_drop_replication_slot('`+b.cfg.Slot+`')`)
	if state, err = Inspect(t.Context(), pg, b.cfg); err != nil {
		t.Fatal(err)
	}
	state.Publication = Publication{}
	if _, err := InitPlan(&state, b.setup); !errors.As(err, &e) || !e.Permanent || !strings.Contains(e.Error(), "physical") {
		t.Errorf("%v", err)
	}
}

func TestPartitionedTablesArePublishedByTheirRoot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(t, `CREATE TABLE public.parted (id bigint, payload text, status text) PARTITION BY RANGE (id)`)
	b.Exec(t, `CREATE TABLE public.part1 PARTITION OF public.parted FOR VALUES FROM (0) TO (100)`)
	root := &outbox.Table{Schema: "public", Name: "parted", Mapping: b.cfg.Tables[0].Mapping}
	leaf := &outbox.Table{Schema: "public", Name: "part1", Mapping: b.cfg.Tables[0].Mapping}
	b.cfg.Tables = []*outbox.Table{root}
	b.setup.Config = b.cfg
	b.init(t)
	c := b.lead(t)
	if s, v := b.judge(t, c, Identity{}); len(v.Tables) != 0 || s.Tables[0].Kind != "p" {
		t.Errorf("the root: %+v, %+v", v.Tables, s.Tables[0])
	}
	c.cfg.Tables = []*outbox.Table{leaf}
	if s, v := b.judge(t, c, Identity{}); len(v.Tables) != 1 || s.Tables[0].PartitionOf != "public.parted" || len(v.Add) != 0 {
		t.Errorf("the leaf: %+v, %+v", v.Tables, s.Tables[0])
	}
	b.Exec(t, `ALTER PUBLICATION pub SET (publish_via_partition_root = false)`)
	c.cfg.Tables = []*outbox.Table{root}
	if s, v := b.judge(t, c, Identity{}); len(v.Tables) != 1 || !strings.Contains(v.Tables[0].Hint, "publish_via_partition_root") {
		t.Errorf("published by leaves: %+v, %+v", v.Tables, s.Tables[0])
	}
	b.Exec(t, `CREATE UNLOGGED TABLE public.fast (id bigint PRIMARY KEY, payload text)`)
	c.cfg.Tables = []*outbox.Table{{Schema: "public", Name: "fast"}, {Schema: "no", Name: "such"}}
	if _, v := b.judge(t, c, Identity{}); len(v.Tables) != 2 || !strings.Contains(v.Tables[0].Reason, "unlogged") || !strings.Contains(v.Tables[1].Reason, "does not exist") {
		t.Errorf("%+v", v.Tables)
	}
}

// A generated column is published if the server can publish it. init arranges that, even in an existing
// publication of ours.
func TestGeneratedColumnsArePublished(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	version := b.Major(t)
	b.Exec(t, `CREATE TABLE public.made (id bigint PRIMARY KEY, kind text, payload text GENERATED ALWAYS AS (kind || ':' || id) STORED, status text)`)
	b.cfg.Tables = []*outbox.Table{{Schema: "public", Name: "made", Mapping: b.cfg.Tables[0].Mapping}}
	b.setup.Config = b.cfg
	b.init(t)
	c := b.lead(t)
	said := func() string {
		if _, v := b.judge(t, c, Identity{}); len(v.Tables) > 0 {
			return v.Tables[0].Reason + ": " + v.Tables[0].Hint
		}
		return ""
	}
	if version < 18 {
		if got := said(); !strings.Contains(got, "before PostgreSQL 18") || !strings.Contains(got, "DROP EXPRESSION") {
			t.Error(got)
		}
		return
	}
	if got := said(); got != "" {
		t.Error(got)
	}
	b.Exec(t, `ALTER PUBLICATION pub SET (publish_generated_columns = none)`)
	if got := said(); !strings.Contains(got, `leaves out the generated column "payload"`) {
		t.Error(got)
	}
	b.init(t)
	if got := said(); got != "" {
		t.Error(got)
	}
	b.Exec(t, `ALTER TABLE public.made DROP payload, ADD payload text GENERATED ALWAYS AS (kind) VIRTUAL`)
	if got := said(); !strings.Contains(got, "VIRTUAL") || !strings.Contains(got, "STORED, which rewrites the table") {
		t.Error(got)
	}
}

func TestDroppedSlotIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	c := b.lead(t)
	s, _ := b.judge(t, c, Identity{})
	known := Identify(&s, &b.cfg)
	b.Exec(t, `SELECT pg_drop_replication_slot('`+b.cfg.Slot+`')`)
	if err := c.Start(t.Context()); !errors.Is(err, ErrSlotGone) {
		t.Fatalf("%v", err)
	}
	_, v := b.judge(t, c, known)
	if v.Sound || v.Slot != Make {
		t.Errorf("verdict %+v", v)
	}
	at, err := c.MakeSlot(t.Context(), v.Slot, patience)
	if err != nil || at == 0 {
		t.Fatalf("%v, %v", at, err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert(t, 2)
	receive(t, c, 2)
}

func TestMakingASlotReportsWhatBlocksIt(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"max_prepared_transactions": "5"}})
	b := onBench(t, db)
	elsewhere := harness.Database(t, db.Server)
	elsewhere.Exec(t, `CREATE TABLE x (i int)`)
	c := b.lead(t)

	blockedBy := func(want string) {
		t.Helper()
		_, err := c.MakeSlot(t.Context(), Make, 300*time.Millisecond)
		var blocked *Blocked
		if !errors.As(err, &blocked) || len(blocked.By) != 1 || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v", err)
		}
		if n := harness.One[int64](t, db, `SELECT count(*) FROM pg_replication_slots`); n != 0 {
			t.Fatal("a slot is left")
		}
	}
	open := elsewhere.Conn(t)
	tx, err := open.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO x VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	blockedBy(fmt.Sprintf("pg_terminate_backend(%d)", open.PgConn().PID()))
	if _, err := tx.Exec(t.Context(), `PREPARE TRANSACTION 'stuck'`); err != nil {
		t.Fatal(err)
	}
	blockedBy(`prepared transaction "stuck"`)
	if list, err := BlockersOf(t.Context(), db.Conn(t).PgConn()); err != nil || len(list) != 1 || list[0].Prepared != "stuck" {
		t.Errorf("%v, %v", list, err)
	}
	// When the context ends, the attempt ends at once and leaves nothing behind.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.MakeSlot(ctx, Make, time.Minute); !errors.Is(err, ErrClosed) {
		t.Fatalf("%v", err)
	}
	elsewhere.Exec(t, `ROLLBACK PREPARED 'stuck'`)
	c = b.lead(t)
	harness.Eventually(t, patience, func() error {
		if n := harness.One[int64](t, db, `SELECT count(*) FROM pg_replication_slots`); n != 0 {
			return errors.New("the cancelled attempt's slot is still there")
		}
		return nil
	})
	if _, err := c.MakeSlot(t.Context(), Make, patience); err != nil {
		t.Fatal(err)
	}
	if got := harness.One[string](t, db, `SELECT count(*) || ' ' || bool_or(two_phase) FROM pg_replication_slots WHERE plugin = 'pgoutput' AND NOT temporary`); got != "1 false" {
		t.Errorf("slot: %s", got)
	}
}

// loseSlots makes the server invalidate every idle slot.
func loseSlots(t *testing.T, db *harness.DB) {
	t.Helper()
	db.Exec(t, `SELECT pg_logical_emit_message(false, 'x', 'y')`)
	db.Exec(t, `SELECT pg_switch_wal()`)
	db.Exec(t, `CHECKPOINT`)
}

func TestLostSlotIsNoticedAndMadeAgain(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"max_slot_wal_keep_size": "1MB"}})
	b := onBench(t, db).init(t)
	c := b.stream(t)
	b.insert(t, 5)
	receive(t, c, 5)
	r, err := ReadRetained(t.Context(), postgres.On(db.Conn(t)), b.cfg.Slot)
	if err != nil || r.Bytes() == 0 || r.Status == "" || r.Confirmed == 0 || !r.Active {
		t.Errorf("retained %+v, %v", r, err)
	}
	var ended error
	harness.Eventually(t, patience, func() error {
		loseSlots(t, db)
		_, err := c.Receive(time.Now().Add(100 * time.Millisecond))
		if err == nil {
			return errors.New("the stream goes on")
		}
		ended = err
		return nil
	})
	if !errors.Is(ended, ErrShutdown) && !errors.Is(ended, ErrClosed) {
		t.Errorf("%v", ended)
	}
	c = b.lead(t)
	if err := c.Start(t.Context()); !errors.Is(err, ErrSlotUnusable) {
		t.Fatalf("%v", err)
	}
	s, v := b.judge(t, c, Identity{})
	if v.Slot != Remake || !s.Slot.Lost() || s.Slot.Confirmed == 0 {
		t.Fatalf("verdict %+v of %+v", v, s.Slot)
	}
	if r, err := ReadRetained(t.Context(), postgres.On(db.Conn(t)), b.cfg.Slot); err != nil || r.Bytes() != 0 || r.Status != "lost" {
		t.Errorf("retained %+v, %v", r, err)
	}
	if _, err := c.MakeSlot(t.Context(), v.Slot, patience); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert(t, 5)
	receive(t, c, 5)
}

func TestPublicationDroppedUnderTheStream(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	pool := b.Pool(t)
	watched, err := Observe(t.Context(), postgres.On(pool), b.cfg)
	mark := watched.Publication
	if err != nil || mark == "" {
		t.Fatalf("%q, %v", mark, err)
	}
	c := b.lead(t)
	s, _ := b.judge(t, c, Identity{})
	if s.Publication.Mark != mark {
		t.Errorf("Inspect says %q, Watch %q", s.Publication.Mark, mark)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Exec(t, `DROP PUBLICATION pub`)
	if after, err := Observe(t.Context(), postgres.On(pool), b.cfg); err != nil || Damage(mark, after.Publication) != "was dropped" {
		t.Errorf("%+v, %v", after, err)
	}
	b.insert(t, 3)
	if s.Version >= 180000 {
		if m := next(t, c, time.Now().Add(patience)); m.Kind != Notice && m.Kind != Keepalive {
			t.Logf("first comes %+v", m)
		}
		noticed(t, c, "pub")
		return
	}
	if err := failing(t, c); !errors.Is(err, ErrPublicationGone) {
		t.Fatalf("%v", err)
	}
	c = b.lead(t)
	_, v := b.judge(t, c, Identify(&s, &b.cfg))
	if v.Publication != Make || v.Slot != Remake || v.Cause != outbox.CausePublication {
		t.Errorf("verdict %+v", v)
	}
	if err := MakePublication(t.Context(), b.Conn(t).PgConn(), b.cfg); err != nil {
		t.Fatal(err)
	}
	// With the old slot, decoding fails again each time.
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := failing(t, c); !errors.Is(err, ErrPublicationGone) {
		t.Fatalf("%v", err)
	}
	c = b.lead(t)
	after, v := b.judge(t, c, Identify(&s, &b.cfg))
	if v.Slot != Remake || v.Publication != Keep || !strings.Contains(v.Reason, "re-created") {
		t.Errorf("verdict %+v", v)
	}
	if _, err := c.MakeSlot(t.Context(), v.Slot, patience); err != nil {
		t.Fatal(err)
	}
	if _, v := b.judge(t, c, Identify(&after, &b.cfg)); !v.Sound {
		t.Errorf("after all: %s", v.Reason)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert(t, 3)
	receive(t, c, 3)
}

func noticed(t *testing.T, c *Conn, about string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		if m := next(t, c, end); m.Kind == Notice {
			if !strings.Contains(m.Warning, about) || m.Code != "55000" {
				t.Errorf("notice %+v", m)
			}
			return
		}
	}
}

// A slot that stands beyond the end of the WAL, as after the restore of an older copy, is unsound.
func TestSlotFromTheFutureIsUnsound(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	c := b.stream(t)
	s, err := Inspect(t.Context(), b.Conn(t).PgConn(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.SystemID != "" {
		t.Error("a plain connection knows the system identifier")
	}
	// The server accepts a confirmation beyond the end of its WAL.
	if err := c.SendStatus(s.Insert + 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, v := b.judge(t, c, Identity{})
	if v.Sound || v.Slot != Remake || !strings.Contains(v.Reason, "but the WAL ends at") {
		t.Fatalf("verdict %+v", v)
	}
	if _, err := c.MakeSlot(t.Context(), v.Slot, patience); err != nil {
		t.Fatal(err)
	}
	if got := b.confirmed(t); got >= s.Insert+1<<30 {
		t.Errorf("confirmed %v", got)
	}
}

func TestTerminationClosesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	c := b.stream(t)
	b.Exec(t, `SELECT pg_terminate_backend($1)`, int32(c.PID()))
	if err := failing(t, c); !errors.Is(err, ErrShutdown) && !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := c.Beat(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	c = b.lead(t)
	b.Exec(t, `SELECT pg_terminate_backend($1)`, int32(c.PID()))
	harness.Eventually(t, patience, func() error {
		if err := c.Beat(t.Context()); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrShutdown) {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
}

// A fast shutdown waits for a walsender's client that does not confirm. It must no longer wait once the
// client has been told of the shutdown.
func TestFastShutdownIsNotHeldUp(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	b := onBench(t, db).init(t)
	c := b.stream(t)
	b.insert(t, 100)
	receive(t, c, 100)
	stopped := make(chan error, 1)
	go func() { stopped <- db.Server.Stop(t.Context(), localpg.Fast) }()
	// The pipeline learns of the shutdown by 57P01 or 57P03 on any other connection.
	harness.Eventually(t, patience, func() error {
		_, err := connect(t.Context(), b.cfg.withDefaults())
		if !errors.Is(err, ErrShutdown) {
			return fmt.Errorf("a new connection gets %w", err)
		}
		return nil
	})
	c.Kill()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the shutdown hangs")
	}
	if _, err := Lead(t.Context(), b.cfg); err == nil || permanentError(err) {
		t.Errorf("a server that is down: %v", err)
	}
}

func permanentError(err error) bool {
	var e *postgres.Error
	return errors.As(err, &e) && e.Permanent
}

// A heartbeat over a dead connection ends in time, because other periodic work waits for it.
func TestAHeartbeatHasItsTime(t *testing.T) {
	t.Parallel()
	db, proxy := harness.Postgres(t).Proxied(t)
	conn := db.Conn(t)
	proxy.Silence(harness.Requests, harness.Replies)
	ended := make(chan error, 1)
	go func() {
		_, err := Heartbeat(t.Context(), postgres.On(conn))
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"wal_level": "replica", "max_wal_senders": "2"}})
	b := onBench(t, db)
	db.Exec(t, `CREATE ROLE plain LOGIN PASSWORD 'p'; CREATE ROLE streamer LOGIN REPLICATION PASSWORD 'p'; CREATE ROLE locked NOLOGIN REPLICATION PASSWORD 'p'`)
	refuse := func(dsn, hint string) {
		t.Helper()
		cfg := b.cfg
		cfg.DSN = dsn
		var err error
		harness.Eventually(t, patience, func() error { // a refused walsender takes a moment to end
			var c *Conn
			if c, err = Lead(t.Context(), cfg); err == nil {
				c.Kill()
				return errors.New("no error")
			}
			if strings.Contains(err.Error(), "53300") {
				return err
			}
			return nil
		})
		var e *postgres.Error
		if !errors.As(err, &e) || !e.Permanent || !strings.Contains(e.Hint, hint) {
			t.Errorf("%v", err)
		}
	}
	refuse(db.Server.DSNAs(db.Name, "streamer", "wrong"), `ALTER ROLE "streamer" PASSWORD`)
	refuse(db.Server.DSNAs(db.Name, "plain", "p"), `ALTER ROLE "plain" REPLICATION`)
	refuse(db.Server.DSNAs(db.Name, "locked", "p"), `create role "locked" with LOGIN`)
	refuse(db.Server.DSNAs("nowhere", "streamer", "p"), "database")
	refuse("postgres://%zz", "dsn")
	refuse(strings.Replace(b.DSN, "sslmode=disable", "sslmode=require", 1), "sslmode=disable")

	b.cfg.DSN = db.Server.DSNAs(db.Name, "streamer", "p") + "&pool_max_conns=3&default_query_exec_mode=exec"
	c := b.lead(t)
	db.Exec(t, `CREATE ROLE rds_superuser`) // a sign of Amazon RDS, where the setting is changed in another way
	_, v := b.judge(t, c, Identity{})
	db.Exec(t, `DROP ROLE rds_superuser`)
	_, err := c.MakeSlot(t.Context(), Make, time.Second)
	if db.Major(t) >= 19 { // the first slot raises the level
		if v.Err != nil || err != nil {
			t.Errorf("verdict %+v, %v", v, err)
		}
	} else {
		if v.Err == nil || !v.Err.Permanent || !strings.Contains(v.Err.Error(), "wal_level is replica") || !strings.Contains(v.Err.Hint, "rds.logical_replication = 1") {
			t.Errorf("verdict %+v", v)
		}
		if !permanentError(err) || !strings.Contains(err.Error(), "ALTER SYSTEM SET wal_level") {
			t.Errorf("%v", err)
		}
	}
	// Both walsenders are in use.
	another := b.cfg
	another.Slot = "another"
	second, err := Lead(t.Context(), another)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Kill()
	_, err = Lead(t.Context(), b.cfg)
	var e *postgres.Error
	if !errors.As(err, &e) || e.Permanent || !strings.Contains(e.Hint, "max_wal_senders") {
		t.Errorf("%v", err)
	}
}

// The streaming role needs REPLICATION and nothing else.
func TestStreamingRoleNeedsReplicationOnly(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	b := onBench(t, db)
	b.setup.StreamRole, b.setup.WriteRole = "streamer", "writer"
	m := &b.setup.Tables[0].Mapping
	m.Retention = time.Hour
	m.HeadersTable = outbox.HeadersTable{Schema: "beside", Name: "headers"}
	m.ShedLock = outbox.ShedLock{Schema: "beside", Table: "locks", Name: "relay"}
	m.RetentionLock = outbox.ShedLock{Schema: "beside", Table: "locks", Name: "housekeeping"}
	db.Exec(t, `CREATE SCHEMA beside CREATE TABLE headers (id int) CREATE TABLE locks (name text)`)
	b.init(t).init(t)
	db.Exec(t, `ALTER ROLE streamer PASSWORD 'p'; ALTER ROLE writer PASSWORD 'p'`)
	db.Exec(t, `REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO writer`)
	b.cfg.DSN = db.Server.DSNAs(db.Name, "streamer", "p")
	c := b.lead(t)
	_, v := b.judge(t, c, Identity{})
	if v.Err != nil || len(v.Tables) != 0 {
		t.Errorf("verdict %+v", v)
	}
	if _, err := c.MakeSlot(t.Context(), Remake, patience); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert(t, 2)
	receive(t, c, 2)
	writer, err := pgx.Connect(t.Context(), db.Server.DSNAs(db.Name, "writer", "p"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close(context.Background())
	for _, statement := range []string{
		`SELECT ctid, cmin, * FROM public.outbox`, `UPDATE public.outbox SET status = 'SENT' WHERE id = 1`,
		`SELECT id FROM public.outbox FOR UPDATE SKIP LOCKED`, `DELETE FROM public.outbox WHERE id = 2`,
		`INSERT INTO outbox_cdc.leader (stream) VALUES ('x')`, `SELECT * FROM outbox_cdc.park`,
		`SELECT * FROM beside.headers`, `INSERT INTO beside.locks VALUES ('a')`, `UPDATE beside.locks SET name = 'b' WHERE name = 'a'`,
	} {
		if _, err := writer.Exec(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if _, err := writer.Exec(t.Context(), `UPDATE public.outbox SET payload = ''`); err == nil {
		t.Error("the writer can change payloads")
	}
	if _, err := Heartbeat(t.Context(), postgres.On(writer)); err != nil {
		t.Error(err)
	}
	if err := MakePublication(t.Context(), writer.PgConn(), Config{Publication: "p2", Slot: "s2", Tables: b.cfg.Tables}); !permanentError(err) || !strings.Contains(err.Error(), "owner of the tables") {
		t.Errorf("%v", err)
	}
}

// Behind a pooler that gives each statement another session, the lock is lost.
func TestLostLockIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	c := b.lead(t)
	if _, err := c.query(t.Context(), "unlock", "SELECT pg_advisory_unlock_all()::text"); err != nil {
		t.Fatal(err)
	}
	err := c.Beat(t.Context())
	if !errors.Is(err, ErrLockLost) || !permanentError(err) || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("%v", err)
	}
}

func TestLockIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	other := b.Conn(t)
	var got bool
	for _, name := range []string{b.cfg.Slot, "another_slot_with_a_negative_key_1", "another_slot_2", "another_slot_3"} {
		if err := other.QueryRow(t.Context(), `SELECT pg_try_advisory_lock($1)`, LockKey(name)).Scan(&got); err != nil || !got {
			t.Fatal(got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cfg := b.cfg
		cfg.Slot = name
		cfg.Standby = func(h Holder) {
			if h.PID != fmt.Sprint(other.PgConn().PID()) {
				t.Errorf("%s: held by %+v", name, h)
			}
			cancel()
		}
		if _, err := Lead(ctx, cfg); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		cancel()
	}
}

// The leader's process is stopped, not killed: its kernel still answers.
func TestStoppedLeaderLosesItsLead(t *testing.T) {
	t.Parallel()
	b := newBench(t).init(t)
	c := b.stream(t) // never sends anything again
	began := time.Now()
	successor := b.lead(t)
	if took := time.Since(began); took > b.cfg.SenderTimeout+20*time.Second {
		t.Errorf("takeover took %v", took)
	}
	if err := successor.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if err := failing(t, c); !errors.Is(err, ErrClosed) {
		t.Errorf("the old leader: %v", err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	db := tlsServer(t)
	b := onBench(t, db).init(t)
	b.cfg.DSN = strings.Replace(b.DSN, "sslmode=disable", "sslmode=require", 1)
	b.insert(t, 20_000)
	c := b.stream(t)
	c.NoteInsert(math.MaxUint64) // far from the end of the WAL
	receive(t, c, 10_000)
	if err := c.SendStatus(0); err != nil {
		t.Fatal(err)
	}
	receive(t, c, 10_000)
	c.NoteInsert(0)
	// Timeouts at any point lose nothing.
	for i := range 200 {
		if err := c.SendStatus(0); err != nil {
			t.Fatal(err)
		}
		b.Exec(t, `INSERT INTO public.outbox (payload) VALUES (repeat('y', $1))`, i*100)
		for {
			m, err := c.Receive(time.Now().Add(time.Millisecond))
			if err == nil && m.Kind == Idle {
				err = c.SendStatus(0)
			}
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind == Data && m.Data[0] == 'C' {
				break
			}
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := b.cfg
	refused.DSN = strings.Replace(b.DSN, "sslmode=disable", "sslmode=verify-full", 1)
	if _, err := Lead(t.Context(), refused); !permanentError(err) || !strings.Contains(err.Error(), "sslrootcert") {
		t.Errorf("%v", err)
	}
}

// If another role makes schema outbox_cdc while an administrator's init runs, that role's trigger does not
// fire.
func TestASchemaMadeDuringInitIsNotTrusted(t *testing.T) {
	b := newBench(t)
	other := pgx.Identifier{b.Name + "_other"}.Sanitize()
	b.Exec(t, `CREATE ROLE `+other)
	defer func() { b.Exec(t, `DROP OWNED BY `+other+` CASCADE; DROP ROLE `+other) }()
	pg := b.Conn(t).PgConn()
	state, err := Inspect(t.Context(), pg, b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := InitPlan(&state, b.setup)
	if err != nil {
		t.Fatal(err)
	}
	premade := fmt.Sprintf(`CREATE SCHEMA outbox_cdc; %s; CREATE TABLE public.fired (as_role text);
		CREATE FUNCTION outbox_cdc.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.fired VALUES (current_user); RETURN NEW; END $$;
		CREATE TRIGGER a BEFORE INSERT ON outbox_cdc.leader FOR EACH ROW EXECUTE FUNCTION outbox_cdc.fire();
		ALTER SCHEMA outbox_cdc OWNER TO %[2]s; ALTER TABLE outbox_cdc.leader OWNER TO %[2]s; ALTER TABLE outbox_cdc.park OWNER TO %[2]s`, sql.Schema, other)
	first := Step{Title: "what somebody else makes", SQL: premade}
	err = Apply(t.Context(), pg, b.setup, append([]Step{first}, plan...), Progress{})
	if !errors.Is(err, errForeignSchema) {
		t.Errorf("init went on: %v", err)
	}
	if n := harness.One[int](t, b.DB, `SELECT count(*)::int FROM public.fired`); n > 0 {
		t.Error("the trigger of somebody else was fired")
	}
}
