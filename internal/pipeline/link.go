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

// finishWithin bounds the last status message of a clean stop.
const finishWithin = 5 * time.Second

// link connects the WAL reader's goroutine with the driver's. Neither uses the other's state.
type link struct {
	// batches and connEvents go to the driver. It takes batches only while the Core reads. spare returns used
	// batches to the WAL reader.
	batches    chan *batch
	connEvents chan connEvent
	spare      chan *batch

	// confirm is the position up to which the Core allows the slot to be confirmed. mayMake says whether the
	// Core allows the slot to be made. The driver sets both.
	confirm atomic.Uint64
	mayMake atomic.Bool
	// apart: rows still in use are scattered in memory, so new rows should not share memory.
	apart atomic.Bool
	// atOnce is how many rows the driver's limit allows at once; 0: any number.
	atOnce atomic.Int64

	// streaming is the replication connection while it streams. Other goroutines use it to end the
	// connection.
	streaming atomic.Pointer[replication.Conn]
	// judged is the Identity by which the streaming connection was judged; nil: no connection streams.
	judged atomic.Pointer[statestore.Identity]
	// refused are the tables that could not be read when the connection began.
	refused atomic.Pointer[[]*outbox.Table]
	// unfit are the tables whose last row from the WAL did not fit the mapping. The driver sets it. A table
	// that is left from an earlier connection costs one needless reconnection.
	unfit atomic.Pointer[[]*outbox.Table]
	// lacking: when the connection began, the publication did not cover every table.
	lacking atomic.Bool
	// passedOver: rows of tables without state may have been passed over since the connection began. Every
	// identity that is stored says so, until a person has checked.
	passedOver atomic.Bool
	// overBudget is why the slot is given up when the connection ends; nil: the slot is kept.
	overBudget atomic.Pointer[string]

	// told: the reason for ending the streaming connection is already logged, so its end is logged quietly.
	// It is reset for each connection.
	told atomic.Bool

	// The driver closes finishing when everything is drained. The WAL reader closes finished when it has left
	// the connection.
	finishing, finished chan struct{}
	// clean: every published row is marked. fences is what the sinks leave to the next leader. Both are set
	// before finishing is closed.
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

// batch is a batch of decoded frames. walEnd is the position up to which everything was received, if no row
// follows.
type batch struct {
	decoder.Batch
	walEnd outbox.LSN
	began  time.Time   // when the first frame arrived
	clock  serverClock // as of the last frame
}

// connEvent tells the driver that a connection began or was lost. The WAL reader waits until done is closed.
type connEvent struct {
	lost      bool
	connected checkpoint.Connected
	settled   settledOn
	paused    paused
	done      chan struct{}
}

// tell sends an event to the driver and waits until the driver has handled it.
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

// kill ends the streaming connection from another goroutine. The WAL reader then makes the next one.
func (l *link) kill() {
	if conn := l.streaming.Load(); conn != nil {
		conn.Kill()
	}
}

// closeOnShutdown closes the replication connection when an error on another connection says that the server
// is shutting down. A fast shutdown waits until the clients of walsenders have received and confirmed
// everything. A stream in mode HOLD would block it for ever.
// https://www.postgresql.org/docs/current/server-shutdown.html
func (l *link) closeOnShutdown(err error) {
	if postgres.HasCode(err, pgerrcode.AdminShutdown, pgerrcode.CannotConnectNow) && !tablesql.Raised(err) { // a trigger can raise these errors too
		l.kill()
	}
}

// restart ends the streaming connection for a reason that is already logged.
func (l *link) restart() {
	if conn := l.streaming.Load(); conn != nil {
		l.told.Store(true)
		conn.Kill()
	}
}

// giveUp ends the streaming connection, so that the next one drops the slot and makes it again. It returns
// false if no connection streams.
func (l *link) giveUp(reason string) bool {
	if l.streaming.Load() == nil {
		return false
	}
	l.overBudget.Store(&reason)
	l.restart()
	return true
}

// giveBack returns a used batch. The driver calls it.
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

// finish is called by the driver at a stop, when everything is drained or the time for that is over.
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

// setUnfit records whether the last row of a table did not fit the mapping.
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
