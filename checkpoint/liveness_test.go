package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Without the behaviour that is tested in this file nothing would be lost, it would only take longer. So no
// invariant of the simulation shows it.

// begun returns a Core that streams one table, and the time that it was told.
func begun(t *testing.T, published outbox.Published) (*Core, *outbox.Table, time.Time) {
	t.Helper()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Published: published}}
	c := New(Config{
		Tables: []*outbox.Table{table}, MaxRows: 100, MaxBytes: 1 << 20, PageRows: 2, SmallRound: 2, MaxKeys: 10, MaxRetryingKeys: 20, MaxTopics: 10,
		BackoffMin: time.Second, BackoffMax: time.Minute, WatchEvery: time.Hour,
	})
	now := time.Unix(1000, 0)
	c.Tick(now)
	c.Connect(Connected{Streaming: true})
	c.Take()
	return c, table, now
}

func rowOf(table *outbox.Table, id string) *outbox.Row {
	return &outbox.Row{Table: table, ID: id, Cluster: "main", Topic: "t", Key: []byte(id), Pending: true, XID: 7, Commit: 10, Partition: -1}
}

// When a round of the watch has found its maximum number of rows, the next round begins at once.
func TestAFullRoundOfTheWatchIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	c.Tick(now.Add(time.Hour))
	if c.Take().Watch == nil {
		t.Fatal("no round begins")
	}
	c.Watched(outbox.Candidates{Rows: []*outbox.Row{rowOf(table, "1"), rowOf(table, "2")}})
	if c.Take().Rewatch == nil {
		t.Fatal("the round does not go on")
	}
	c.Rewatched(nil)
	if c.Take().Watch == nil {
		t.Error("no further round begins at once")
	}
}

// A clean stop of tables without state reads the open transaction to its end, and no further.
func TestACleanStopReadsNoFurtherThanTheOpenTransaction(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedNone)
	c.Begin(outbox.Transaction{XID: 7, Commit: 10, End: 20})
	c.Rows([]*outbox.Row{rowOf(table, "1")})
	c.Drain()
	if !c.Reading() {
		t.Error("the open transaction is not read to its end")
	}
	c.Commit(20)
	if c.Reading() {
		t.Error("the WAL is read beyond it")
	}
}

// A commit shows that everything up to its end was received, without a keepalive.
func TestACommitWasReceived(t *testing.T) {
	t.Parallel()
	var l ledger
	l.reset()
	l.begin(outbox.Transaction{XID: 7, Commit: 10, End: 20})
	seq := l.hold()
	l.commit(20)
	if l.settledTo(20) {
		t.Error("settled with a row that is held")
	}
	l.release(seq, 1)
	if !l.settledTo(20) {
		t.Error("not settled though everything was received and released")
	}
}

// Retention does not delete unsent rows while they are paused, nor before they have been published.
func TestRetentionLeavesWhatIsPaused(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	other := &outbox.Table{Schema: "public", Name: "other"}
	keeps := func(when string, ours, others bool) {
		t.Helper()
		if c.KeepsUnsent(table) != ours || c.KeepsUnsent(other) != others {
			t.Errorf("%s: kept %v, of another table %v", when, c.KeepsUnsent(table), c.KeepsUnsent(other))
		}
	}
	keeps("streaming", false, false)
	c.Pause([]outbox.Park{{Scope: outbox.TableScope(table)}})
	keeps("the table is paused", true, false)
	c.Pause(nil)
	keeps("the table is resumed", true, false)
	c.unpark(c.parks.of(outbox.TableScope(table)))
	keeps("handed back", false, false)
	c.Pause([]outbox.Park{{Scope: outbox.StreamScope()}})
	keeps("the stream is paused", true, true)
	c.unpark(c.parks.stream())
	c.Disconnect()
	keeps("without a connection", true, true)
}

// While a table is paused and refuses its marks, the marks are tried now and then, and the table stays paused.
func TestAPausedTableThatRefusesMarksIsAskedNowAndThen(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	row := rowOf(table, "1")
	c.Begin(outbox.Transaction{XID: 7, Commit: 10, End: 20})
	c.Rows([]*outbox.Row{row})
	c.Commit(20)
	c.Take()
	c.Pause([]outbox.Park{{Scope: outbox.TableScope(table)}})
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{row}, Class: outbox.Delivered})
	p := c.parks.of(outbox.TableScope(table))
	version := p.version
	for range 3 {
		if r := c.Take(); len(r.Marks) != 1 {
			t.Fatalf("%d marks when it is time", len(r.Marks))
		}
		c.Marked([]outbox.Marked{{Row: row, Kind: outbox.MarkSent, State: outbox.MarkedRefused, Err: errors.New("refused")}})
		if r := c.Take(); len(r.Marks) != 0 || p.Cause != outbox.CausePaused || p.version != version {
			t.Fatalf("asked %d times at once; the park is %+v", len(r.Marks), p.Park)
		}
		now = now.Add(time.Second)
		c.Tick(now)
	}
}

// While a table goes on refusing its marks, the wait before each try grows.
func TestATableThatRefusesMarksIsAskedLessOften(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	row := rowOf(table, "1")
	c.Begin(outbox.Transaction{XID: 7, Commit: 10, End: 20})
	c.Rows([]*outbox.Row{row})
	c.Commit(20)
	c.Take()
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{row}, Class: outbox.Delivered})
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if r := c.Take(); len(r.Marks) != 1 {
			t.Fatalf("%d marks before a wait of %v", len(r.Marks), wait)
		}
		c.Marked([]outbox.Marked{{Row: row, Kind: outbox.MarkSent, State: outbox.MarkedRefused, Err: errors.New("refused")}})
		if p := c.parks.of(outbox.TableScope(table)); p == nil || p.Next.Sub(now) != wait {
			t.Fatalf("%+v, want a wait of %v", p, wait)
		}
		now = now.Add(wait)
		c.Tick(now)
	}
}
