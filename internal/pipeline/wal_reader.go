package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Bounds of a batch, and the WAL reader's waiting times.
const (
	batchRows    = 4000                  // a batch is handed over when it has this many rows (see batchRowsOf),
	batchBytes   = 1 << 20               // or this many bytes, or when nothing more can be read at once.
	gatherFor    = 20 * time.Millisecond // If more is sure to come, it is handed over when its rows have waited this long
	statusEvery  = time.Second           // longest time between two status messages
	reconnectMin = 50 * time.Millisecond // before a lost connection is made again: the first pause,
	reconnectMax = 5 * time.Second       // and the longest
)

// walReader is the goroutine that owns the replication connection. It leads, repairs slot and publication,
// and reads frames into batches. It sends the confirmed position at its own intervals, whatever the driver
// does.
type walReader struct {
	*link
	*telling
	cfg       replication.Config
	pool      *pgxpool.Pool
	guard     *TimelineGuard
	stateless bool // the tables keep no state
	lead      *leadership
	store     *store
	sweeper   *sweeper.Sweeper
	pauses    *pauses
	once      *once
	learned   *learned

	conn    *replication.Conn
	decoder *decoder.Decoder
	// history is the database's history at the term's first connection. received is the highest position that
	// was reported since. See sameHistory.
	history    history
	received   outbox.LSN
	keepalives keepalives // of the present connection
	sent       int64      // the server's time in the last message
	clock      serverClock
	// remembered is the stored Identity of the stream's slot.
	remembered  statestore.Identity
	statusEvery time.Duration // see beats
	batchRows   int           // see batchRowsOf
}

// errSuperseded: another process leads, or has led in between, so the rows in memory are out of date.
var errSuperseded = errors.New("another process took the lead")

// errLost: rows of tables without state were passed over, or would be. The term ends, and the stream stays
// stopped until a person has acted.
var errLost = errors.New("stopped, so that no row is lost in silence")

// history tells a database from its copies, which have diverged from it.
type history struct {
	system   string // system identifier
	timeline uint32
}

// beats returns how often the server has to hear from a connection: at least every quarter of SenderTimeout.
func beats(cfg *replication.Config) time.Duration {
	if t := cfg.SenderTimeout; t > 0 {
		return min(statusEvery, t/4)
	}
	return statusEvery
}

// begin starts reading the WAL when the clusters are recovered, or recoverWithin has passed. With tables
// without state it waits without limit, because their rows cannot be swept later.
func (w *walReader) begin(ctx context.Context) error {
	if err := w.once.recoverFirst(ctx, w.conn, w.finishing); err != nil && w.once.stateless != nil {
		w.conn.Kill()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", errNewTerm, err)
	}
	return w.run(ctx)
}

// run makes one connection after another, until the stop or the loss of the leadership.
func (w *walReader) run(ctx context.Context) error {
	defer close(w.finished)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // repairing the slot and leading again end at a stop, too
		select {
		case <-w.finishing:
			cancel()
		case <-waiting.Done():
		}
	}()
	waits := growing(reconnectMin, reconnectMax) // so that connections that fail at once do not follow one another without a pause
	for {
		began := time.Now()
		err := w.connection(ctx, waiting)
		w.conn.Kill()
		w.learned.silence.note(err, outbox.LSN(w.confirm.Load()))
		if err == nil || waiting.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errMoved) || errors.Is(err, errLost) {
			return err
		}
		w.tellEnd(err)
		// This is reported here, where the lead is taken again. The driver may hear of it later.
		w.metrics.LeadLost()
		w.tracker.leadLost()
		if err := w.tell(ctx, connEvent{lost: true}); err != nil {
			return err
		}
		if time.Since(began) > reconnectMax {
			waits.Reset()
		}
		if err := wait.Sleep(waiting, waits.NextBackOff()); err != nil {
			return ctx.Err()
		}
		if err := w.leadAgain(waiting); err != nil && waiting.Err() == nil {
			w.learned.silence.note(err, 0)
			return err
		}
		if waiting.Err() != nil {
			return ctx.Err()
		}
	}
}

// tellEnd logs why a connection ended. It remembers errors after which the slot has to be made again although
// it looks sound. An error about binary values is no fault: binary values are requested before all columns
// are known.
func (w *walReader) tellEnd(err error) {
	unreadable, is := errors.AsType[*decoder.Error](err)
	if is && unreadable.NeedsText {
		w.learned.text.Store(true)
		w.log.Info().Err(err).Msg("reading the WAL as text from here on")
		return
	}
	overBudget, toldAloud := w.overBudget.Swap(nil), true // by the park, or by the next attempt if that fails
	switch {
	case overBudget != nil:
		w.learned.remake = checkpoint.Connected{Cause: outbox.CauseWALBudget, Reason: *overBudget}
	case errors.Is(err, replication.ErrPublicationGone):
		w.learned.remake = checkpoint.Connected{Cause: outbox.CausePublication, Reason: err.Error()}
	case is, errors.Is(err, replication.ErrUnreadable), errors.Is(err, replication.ErrFrameTooLarge), errors.Is(err, replication.ErrProtocol):
		w.learned.remake = checkpoint.Connected{Cause: outbox.CauseUnreadable, Reason: err.Error()}
	case errors.Is(err, replication.ErrSlotGone), postgres.Unreachable(err):
	default:
		toldAloud = false
	}
	if w.told.Swap(false) {
		w.log.Info().Str("slot", w.cfg.Slot).Msg("the replication connection begins again")
		return
	}
	level := zerolog.WarnLevel
	if toldAloud {
		level = zerolog.InfoLevel
	}
	w.log.WithLevel(level).Err(err).Str("slot", w.cfg.Slot).Msg("the replication connection ended")
	w.tracker.recordError("the replication connection", postgres.Text(err), "")
}

// leadAgain connects until this process leads again. If another process leads, or has led in between, the
// rows in memory are out of date and the term is over.
func (w *walReader) leadAgain(ctx context.Context) error {
	ours := sessions{}
	ours.add(w.conn)
	conn, err := backoff.Retry(ctx, func() (*replication.Conn, error) { return w.tryLeading(ctx, ours) },
		backoff.WithBackOff(growing(reconnectMin, reconnectMax)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(w.report))
	if err != nil {
		return err
	}
	w.conn = conn
	return nil
}

func (w *walReader) tryLeading(ctx context.Context, ours sessions) (*replication.Conn, error) {
	waiting, stopWaiting := context.WithCancelCause(ctx)
	defer stopWaiting(nil)
	cfg := w.cfg
	cfg.Binary = !w.learned.text.Load()
	cfg.Standby = func(h replication.Holder) {
		if h.PID != "" && !ours[h.PID] {
			stopWaiting(fmt.Errorf("%w: %v", errSuperseded, h))
		}
	}
	conn, err := replication.Lead(waiting, cfg)
	if err != nil {
		if cause := context.Cause(waiting); errors.Is(cause, errSuperseded) {
			err = backoff.Permanent(cause)
		}
		return nil, err
	}
	ours.add(conn)
	lead, err := w.lead.take(ctx)
	switch {
	case err == nil && lead.Interrupted:
		err = backoff.Permanent(errSuperseded)
	case errors.Is(err, errMoved), errors.Is(err, statestore.ErrClaimed):
		err = backoff.Permanent(err)
	}
	if err != nil {
		conn.Kill()
		return nil, err
	}
	w.remembered = w.learned.remembers(lead.Known)
	w.passedOver.Store(false)
	w.metrics.Leading(lead.Epoch)
	w.tracker.leads(w.cfg.Name, lead.Epoch)
	return conn, nil
}

// connection makes the slot sound if it is not, and streams. It returns nil when the driver has finished.
func (w *walReader) connection(ctx, waiting context.Context) error {
	w.decoder.Reset()
	connected, err := w.makeSound(waiting)
	if err != nil {
		return err
	}
	connected.Streaming = true
	settled, err := w.once.settledUpTo(ctx, w.conn, &w.remembered, connected.Insert)
	if err != nil {
		return err
	}
	if err := w.tellConnected(ctx, connected, settled); err != nil {
		return err
	}
	w.conn.WaitLonger(w.learned.silence.timeout(w.cfg.SenderTimeout))
	if err := w.conn.Start(ctx); err != nil {
		if refused, is := errors.AsType[*postgres.Error](err); is && refused.Permanent {
			w.learned.refused = refused
		}
		return err
	}
	// The Core looks up every row before the insert position read above. The WAL has to pass that position
	// even if nobody writes, hence the heartbeat.
	if _, err := replication.Heartbeat(ctx, postgres.On(w.pool)); err != nil {
		return err
	}
	w.metrics.Connected()
	w.log.Info().Str("slot", w.cfg.Slot).Msg("streaming")
	w.tracker.recordEvent("slot", "streaming from slot "+w.cfg.Slot)
	judged := w.remembered
	w.judged.Store(&judged)
	w.told.Store(false)
	w.streaming.Store(w.conn)
	defer w.streaming.Store(nil)
	return w.read(ctx)
}

// read receives messages until the connection ends or the driver has finished.
func (w *walReader) read(ctx context.Context) error {
	b := <-w.spare
	defer func() { w.giveBack(b) }()
	w.keepalives, w.sent, w.clock = keepalives{answer: make(chan walEnd, 1)}, 0, serverClock{}
	asking, endAsking := context.WithCancel(ctx)
	defer endAsking()
	status := time.Now().Add(w.statusEvery)
	for {
		m, err := w.conn.Receive(w.waitUntil(b, status))
		if err != nil {
			return err
		}
		reply := m.ReplyRequested
		w.sent = max(w.sent, m.Sent)
		switch m.Kind {
		case replication.Data:
			w.received = max(w.received, m.WALEnd)
			if b.Empty() {
				b.began = time.Now()
				w.decoder.Apart(w.apart.Load())
			}
			if err := w.decoder.Decode(m.Data, &b.Batch); err != nil {
				return err
			}
		case replication.Keepalive:
			w.decoder.Sent(m.WALEnd)
			w.keepalives.latest = max(w.keepalives.latest, m.WALEnd)
		case replication.Notice:
			level := zerolog.WarnLevel
			if m.Code == pgerrcode.ObjectNotInPrerequisiteState && w.following.Load() != nil { // it is already reported that the publication was missing
				level = zerolog.InfoLevel
			}
			w.log.WithLevel(level).Str("sqlstate", m.Code).Str("notice", m.Warning).Str("hint", m.Hint).Msg("the server warns about the slot")
			w.tracker.warned(m.Warning, time.Now())
			if err := w.lookAtPublication(ctx); err != nil {
				return err
			}
		}
		if m.Kind != replication.Data {
			if err := w.count(asking, b); err != nil {
				return err
			}
		}
		full := w.full(b, m.Kind == replication.Idle)
		if full {
			w.clock.heard(w.sent, time.Now())
			b.clock = w.clock
			if b, err = w.handOver(ctx, b); err != nil || b == nil {
				return err
			}
		}
		// The clock is read once per read and once per batch, since either may have waited. It is not read
		// for each row.
		if !full && !reply && w.conn.Buffered() {
			continue
		}
		now := time.Now()
		if m.Kind != replication.Idle {
			w.metrics.Heard(now)
		}
		if reply || now.After(status) {
			if err := w.feedBack(); err != nil {
				return err
			}
			status = now.Add(w.statusEvery)
		}
		select {
		case <-w.finishing:
			return w.stop(ctx)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
}

// lookAtPublication ends the connection if a warning came because the publication was missing. Version 18
// then passes rows over and goes on (seen with 18.4); earlier versions end the stream. No later row may be
// taken from this connection, because it would overtake the missing rows.
func (w *walReader) lookAtPublication(ctx context.Context) error {
	watched, err := replication.Observe(ctx, postgres.On(w.pool), w.cfg)
	if err != nil {
		return err
	}
	if damage := replication.Damage(w.remembered.Publication, watched.Publication); damage != "" {
		return fmt.Errorf("publication %s %s: %w", w.cfg.Publication, damage, replication.ErrPublicationGone)
	}
	return nil
}

// feedBack sends the confirmed position to the server.
func (w *walReader) feedBack() error {
	confirm := outbox.LSN(w.confirm.Load())
	if confirm > w.conn.Confirmed() {
		if err := failpoint.Here(failpoint.BeforeConfirm); err != nil {
			return err
		}
	}
	return w.conn.SendStatus(confirm)
}

// waitUntil returns until when to wait for more WAL.
func (w *walReader) waitUntil(b *batch, status time.Time) time.Time {
	if gathered := b.began.Add(gatherFor); !b.Empty() && gathered.Before(status) {
		return gathered
	}
	if k := &w.keepalives; k.latest > 0 && !k.asking && k.again.Before(status) {
		return k.again
	}
	return status
}

// batchRowsOf returns how many rows a batch may have: batchRows, or two fifths of the rows that may be in
// memory, if that is less. Reading stops when memory is full, so at most one batch more is in memory.
func batchRowsOf(maxRows int) int { return min(batchRows, maxRows*2/5) }

// full reports whether the batch has to be handed over: it is large, or nothing more can be read at once, so
// that no row waits for a timer. While much more is to come, a small batch is not handed over: it would cost
// Kafka and this process more than its rows are worth.
func (w *walReader) full(b *batch, idle bool) bool {
	most := w.batchRows
	if n := int(w.atOnce.Load()); n > 0 {
		most = min(most, n) // so that rows are spread over the second
	}
	switch {
	case b.Empty() && b.walEnd == 0:
		return false
	case b.Rows() >= most || b.Bytes() >= batchBytes:
		return true
	case w.conn.Buffered():
		return false
	}
	return idle || b.Rows() == 0 || !w.conn.CatchingUp() || time.Since(b.began) >= gatherFor
}

// handOver gives the batch to the driver, however long that takes, and meanwhile keeps sending status
// messages. It returns an empty batch, or nil when the driver has finished.
func (w *walReader) handOver(ctx context.Context, b *batch) (*batch, error) {
	for e := range b.Broken() {
		limited, cancel := context.WithTimeout(ctx, statusEvery) // status messages stop for this time
		e.Err = w.explained(limited, w.pool, w.lead.cfg.Name, e.Table, e.Err)
		cancel()
	}
	ticker := time.NewTicker(w.statusEvery)
	defer ticker.Stop()
	for {
		select {
		case w.batches <- b:
			return <-w.spare, nil
		case <-ticker.C:
			if err := w.feedBack(); err != nil {
				return b, err
			}
		case <-w.finishing:
			w.giveBack(b)
			return nil, w.stop(ctx)
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
}

// stop sends the last position and ends the session in order, so that a standby can take over at once.
func (w *walReader) stop(ctx context.Context) error {
	confirm := outbox.LSN(w.confirm.Load())
	if err := w.conn.SendStatus(confirm); err != nil {
		return nil //nolint:nilerr // the position is confirmed again by the next leader's own work
	}
	if err := w.conn.Stop(ctx); err != nil {
		return nil //nolint:nilerr // as above
	}
	w.remembered.Stopped = w.conn.Confirmed()
	if w.passedOver.Load() {
		w.remembered.Publication += replication.PassedOver
	}
	if err := w.store.Identify(ctx, w.learned.stored(w.remembered)); err != nil {
		w.log.Warn().Err(err).Msg("could not note the position of the clean stop")
	} else if w.clean && w.stateless {
		w.lead.noteClean(ctx, w.fences)
	}
	w.conn.Close(ctx)
	return nil
}
