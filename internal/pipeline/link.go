package pipeline

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// finishWithin is for the last status message of a clean stop.
const finishWithin = 5 * time.Second

// link joins the goroutine that reads the WAL to the driver's side: neither touches the other's state.
type link struct {
	// batches and connEvents go to the driver, which takes batches only while the
	// Core reads. spare brings batches back.
	batches    chan *batch
	connEvents chan connEvent
	spare      chan *batch

	// confirm is up to where the Core lets the slot be confirmed, mayMake whether it lets the slot be made. The driver
	// sets both.
	confirm atomic.Uint64
	mayMake atomic.Bool
	// apart: rows are scattered in memory, so those that come are to share none.
	apart atomic.Bool
	// atOnce is how many rows the driver's limit lets come at once; 0: any number.
	atOnce atomic.Int64

	// streaming is the connection while it streams, for others to end it.
	streaming atomic.Pointer[replication.Conn]
	// judged is what the streaming connection was judged by; nil: it is over.
	judged atomic.Pointer[statestore.Identity]
	// refused are tables that could not be read when the connection began.
	refused atomic.Pointer[[]*outbox.Table]
	// unfit are tables whose last row from the WAL of this connection did not fit the mapping; the driver sets it. One
	// left over from an earlier connection costs one needless reconnection.
	unfit atomic.Pointer[[]*outbox.Table]
	// lacking: the connection began with tables that the publication does not cover.
	lacking atomic.Bool
	// passedOver: rows of tables without state may have been passed over since the connection began. Each write of
	// what is remembered of the slot says so until a person has looked.
	passedOver atomic.Bool
	// overBudget is why the slot is given up at the end of the connection; nil: it is not.
	overBudget atomic.Pointer[string]

	// told: the reason for ending the streaming connection is logged already, so its end is not. Each begins without.
	told atomic.Bool

	// finishing is closed by the driver when everything is drained, finished when the
	// connection is left.
	finishing, finished chan struct{}
	// clean: what was published is marked. fences is what the sinks leave to the next leader.
	// Both are known when finishing is closed.
	clean  bool
	fences map[string]*outbox.Fences
}

func newLink() *link {
	l := &link{
		batches: make(chan *batch), connEvents: make(chan connEvent), spare: make(chan *batch, 3),
		finishing: make(chan struct{}), finished: make(chan struct{}),
	}
	for range cap(l.spare) {
		l.spare <- &batch{}
	}
	return l
}

// batch is decoded frames, and the position up to which everything was
// received when no row follows it.
type batch struct {
	decoder.Batch
	walEnd outbox.LSN
	began  time.Time   // when the first frame came
	clock  serverClock // as of the last one
}

// connEvent tells the driver that a connection began or was lost; the WAL reader
// waits for done.
type connEvent struct {
	lost      bool
	connected checkpoint.Connected
	settled   settledOn
	paused    paused
	done      chan struct{}
}

// tell hands an event to the driver and waits until it was taken in.
func (l *link) tell(ctx context.Context, e connEvent) error {
	e.done = make(chan struct{})
	select {
	case l.connEvents <- e:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.finishing:
		return nil
	}
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends a streaming connection from outside; run then makes the next one.
func (l *link) kill() {
	if conn := l.streaming.Load(); conn != nil {
		conn.Kill()
	}
}

// closeOnShutdown closes the replication connection when an error on any other connection
// says that the server is shutting down. A fast shutdown waits until the clients
// of walsenders have received and confirmed everything; a stream in HOLD
// would keep it waiting for ever.
// https://www.postgresql.org/docs/current/server-shutdown.html
func (l *link) closeOnShutdown(err error) {
	if postgres.HasCode(err, pgerrcode.AdminShutdown, pgerrcode.CannotConnectNow) && !tablesql.Raised(err) { // else a trigger said it
		l.kill()
	}
}

// restart ends a connection that streams, for a reason that is logged.
func (l *link) restart() {
	if conn := l.streaming.Load(); conn != nil {
		l.told.Store(true)
		conn.Kill()
	}
}

// giveUp ends a connection that streams, so that the next one drops the slot and makes it again.
func (l *link) giveUp(reason string) bool {
	if l.streaming.Load() == nil {
		return false
	}
	l.overBudget.Store(&reason)
	l.restart()
	return true
}

// giveBack takes back a batch that was used up; the driver calls it.
func (l *link) giveBack(b *batch) {
	if b == nil {
		return
	}
	b.Reset()
	b.walEnd, b.began = 0, time.Time{}
	select {
	case l.spare <- b:
	default:
	}
}

// finish is the driver's end of a stop: everything is drained, or its time is over.
func (l *link) finish(ctx context.Context, clean bool, fences map[string]*outbox.Fences) error {
	l.clean, l.fences = clean, fences
	close(l.finishing)
	if conn := l.streaming.Load(); conn != nil {
		conn.Wake()
	}
	select {
	case <-l.finished:
	case <-time.After(finishWithin):
	case <-ctx.Done():
	}
	return nil
}

// setUnfit notes whether the last row of a table did not fit.
func (l *link) setUnfit(t *outbox.Table, unfit bool) {
	var all []*outbox.Table
	if before := l.unfit.Load(); before != nil {
		all = slices.DeleteFunc(slices.Clone(*before), func(other *outbox.Table) bool { return other == t })
	}
	if unfit {
		all = append(all, t)
	}
	l.unfit.Store(&all)
}
