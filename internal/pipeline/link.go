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

	// confirm and mayMake are the Core's words, set by the driver: up to where the slot is
	// confirmed, and whether it may be made.
	confirm atomic.Uint64
	mayMake atomic.Bool
	// atOnce is how many rows the driver's limit lets come at once; 0: any number.
	atOnce atomic.Int64

	// streaming is the connection while it streams, for others to end it.
	streaming atomic.Pointer[replication.Conn]
	// judged is what the connection was judged sound with; nil: it is over.
	judged atomic.Pointer[statestore.Identity]
	// refused are tables that could not be read when the connection began.
	refused atomic.Pointer[[]*outbox.Table]
	// unfit are tables whose rows of the WAL do not fit since, by the last row, for the driver. One that is left over from
	// an earlier connection costs one more.
	unfit atomic.Pointer[[]*outbox.Table]
	// lacking: the connection began with tables that the publication does not cover.
	lacking atomic.Bool
	// passedOver: rows of tables without state may have been passed over since what is remembered of the slot
	// was read. Each write of that says so, until a person has looked.
	passedOver atomic.Bool
	// overBudget is why the slot is given up at the end of the connection; nil: it is not.
	overBudget atomic.Pointer[string]

	// told: why the connection that streams is ended is told, so its end is not. Each begins without.
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

// closeOnShutdown closes the replication connection when an error of any other connection
// tells that the server ends sessions. A fast shutdown waits until the clients
// of walsenders have received and confirmed everything; a stream that holds
// would keep it waiting for ever.
// https://www.postgresql.org/docs/current/server-shutdown.html
func (l *link) closeOnShutdown(err error) {
	if postgres.HasCode(err, pgerrcode.AdminShutdown, pgerrcode.CannotConnectNow) && !tablesql.Raised(err) { // a trigger's word is none of the server's
		l.kill()
	}
}

// restart ends a connection that streams, for a reason that is told.
func (l *link) restart() {
	if conn := l.streaming.Load(); conn != nil {
		l.told.Store(true)
		conn.Kill()
	}
}

// giveUp ends a connection that streams, and has the next one drop the slot and make it again.
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

// setUnfit says whether the rows of a table do not fit.
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
