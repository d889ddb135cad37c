package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Bounds of what the log goroutine hands over at once, and its waits.
const (
	batchRows    = 4000                  // a batch is handed over when it has this many rows,
	batchBytes   = 1 << 20               // or bytes, or when nothing more is there to be read;
	gatherFor    = 20 * time.Millisecond // but where more is sure to come, when its rows have waited this long
	statusEvery  = time.Second           // a status message at least this often
	finishWithin = 5 * time.Second       // for the last status message of a clean stop
	reconnectMin = 50 * time.Millisecond // before a lost connection is made again: at first,
	reconnectMax = 5 * time.Second       // and at most
)

// logReader is the goroutine that owns the replication connection: it leads,
// looks after slot and publication, reads frames into batches, and feeds the
// confirmed position back on its own timer, whatever the driver does.
type logReader struct {
	stream *Stream
	d      *driver
	conn   *replication.Conn
	// streaming is the connection while it streams, for others to end it.
	streaming atomic.Pointer[replication.Conn]
	// judged is what the connection was judged sound with; nil: it is over.
	judged  atomic.Pointer[statestore.Identity]
	decoder *decoder.Decoder
	// history is the database's at the term's first connection, and received the
	// farthest position that was heard of: see sameHistory.
	history  history
	received outbox.LSN
	// known is what the stream remembers of its slot.
	known statestore.Identity

	// batches and turns go to the driver, which takes batches only while the
	// Core reads. spare brings batches back.
	batches chan *batch
	turns   chan turn
	spare   chan *batch

	// confirm and mayMake are the Core's words, set by the driver.
	confirm atomic.Uint64
	mayMake atomic.Bool
	// atOnce is how many rows the driver's limit lets come at once; 0: any number.
	atOnce atomic.Int64
	// finishing is closed by the driver when everything is drained.
	finishing chan struct{}
	finished  chan struct{}

	// statusEvery is at most a quarter of the server's patience.
	statusEvery time.Duration
	// remake is why the slot must be made anew though it looks sound.
	remake checkpoint.Connected
}

// batch is decoded frames, and the position up to which everything was
// received when no row follows it.
type batch struct {
	decoder.Batch
	walEnd outbox.LSN
	began  time.Time // when the first frame came
}

// turn tells the driver that a connection began or was lost; the log goroutine
// waits for done.
type turn struct {
	lost      bool
	connected checkpoint.Connected
	done      chan struct{}
}

// errSuperseded: another process leads, or led in between, so what is in memory
// is old.
var errSuperseded = errors.New("another process took the lead")

// errLost: rows of tables that keep no state were passed over, or would be; the
// term ends, and the stream does not go on until somebody has acted.
var errLost = errors.New("stopped, so that no row is lost in silence")

// history tells a database from its copies that went another way.
type history struct {
	system   string // system identifier
	timeline uint32
}

func newLogReader(s *Stream, d *driver, conn *replication.Conn, lead statestore.Leadership) *logReader {
	l := &logReader{
		stream: s, d: d, conn: conn, known: s.remembers(lead.Known),
		decoder: decoder.New(s.cfg.Tables),
		batches: make(chan *batch), turns: make(chan turn),
		spare: make(chan *batch, 3), finishing: make(chan struct{}), finished: make(chan struct{}),
	}
	l.statusEvery = statusEvery
	if t := s.cfg.Replication.SenderTimeout; t > 0 {
		l.statusEvery = min(statusEvery, t/4)
	}
	for range cap(l.spare) {
		l.spare <- &batch{}
	}
	return l
}

// run serves one connection after another until the stop or a lost leadership.
func (l *logReader) run(ctx context.Context) error {
	defer close(l.finished)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // looking after slots and leading again end with the stop, too
		select {
		case <-l.finishing:
			cancel()
		case <-waiting.Done():
		}
	}()
	pause := newPause()
	for {
		began := time.Now()
		err := l.connection(ctx, waiting)
		l.conn.Kill()
		l.stream.silence.note(err, outbox.LSN(l.confirm.Load()))
		if err == nil || waiting.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errMoved) || errors.Is(err, errLost) {
			return err
		}
		l.tellEnd(err)
		if err := l.tell(ctx, turn{lost: true}); err != nil {
			return err
		}
		l.noteRemake(err)
		if err := pause.after(waiting, time.Since(began)); err != nil {
			return ctx.Err()
		}
		if err := l.leadAgain(waiting); err != nil && waiting.Err() == nil {
			return err
		}
		if waiting.Err() != nil {
			return ctx.Err()
		}
	}
}

// pause keeps connections that end at once from following one another without
// a breath.
type pause struct{ waits *backoff.ExponentialBackOff }

func newPause() pause {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = reconnectMin, reconnectMax
	return pause{waits}
}

// after waits, the longer the more often connections lasted only a moment.
func (p pause) after(ctx context.Context, lasted time.Duration) error {
	if lasted > reconnectMax {
		p.waits.Reset()
	}
	select {
	case <-time.After(p.waits.NextBackOff()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tellEnd reports why a connection ended. Asking for binary values is a guess
// until all columns are known.
func (l *logReader) tellEnd(err error) {
	var unreadable *decoder.Error
	if errors.As(err, &unreadable) && unreadable.NeedsText {
		l.stream.text.Store(true)
		l.d.cfg.Log.Info().Err(err).Msg("reading the log as text from here on")
		return
	}
	l.d.cfg.Log.Warn().Err(err).Msg("the replication connection ended")
	l.stream.board.went("the replication connection", err.Error(), "")
}

// silence tells a server that is gone from one that prints a row: a few hundred
// kilobytes of JSON may have numbers that take it minutes, in which nothing comes.
// A connection that ends in silence where the one before did would end there for
// ever, so each waits twice as long as the last.
type silence struct {
	at    outbox.LSN // what was confirmed when the last one ended
	times int        // how many ended in a row without confirming more
}

// longestSilence bounds the patience.
const longestSilence = 15 * time.Minute

func (s *silence) note(err error, confirmed outbox.LSN) {
	if confirmed > s.at {
		*s = silence{at: confirmed}
	}
	if errors.Is(err, replication.ErrSilent) {
		s.times++
	}
}

// patience is how long the next connection may wait.
func (s *silence) patience(usual time.Duration) time.Duration {
	return min(usual<<min(max(s.times-1, 0), 10), max(usual, longestSilence))
}

// noteRemake remembers errors after which a slot that looks sound is not.
func (l *logReader) noteRemake(err error) {
	var unreadable *decoder.Error
	switch {
	case errors.Is(err, replication.ErrPublicationGone):
		l.remake = checkpoint.Connected{Cause: outbox.CausePublication, Reason: err.Error()}
	case errors.As(err, &unreadable) && !unreadable.NeedsText, errors.Is(err, replication.ErrUnreadable),
		errors.Is(err, replication.ErrFrameTooLarge), errors.Is(err, replication.ErrProtocol):
		l.remake = checkpoint.Connected{Cause: outbox.CauseUnreadable, Reason: err.Error()}
	}
}

// leadAgain connects until this process leads again. As soon as another process
// leads, or has led in between, what is in memory is old and the term is over.
func (l *logReader) leadAgain(ctx context.Context) error {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = reconnectMin, reconnectMax
	ours := sessions{}
	ours.add(l.conn)
	conn, err := backoff.Retry(ctx, func() (*replication.Conn, error) { return l.tryLeading(ctx, ours) },
		backoff.WithBackOff(waits), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, wait time.Duration) { l.stream.report(err, wait) }))
	if err != nil {
		return err
	}
	l.conn = conn
	return nil
}

// sessions are the server processes that serve this process's connections. The
// server may take a while to notice that one of them is gone.
type sessions map[string]bool

func (s sessions) add(c *replication.Conn) { s[strconv.FormatUint(uint64(c.PID()), 10)] = true }

func (l *logReader) tryLeading(ctx context.Context, ours sessions) (*replication.Conn, error) {
	waiting, stopWaiting := context.WithCancelCause(ctx)
	defer stopWaiting(nil)
	cfg := l.d.cfg.Replication
	cfg.Binary = !l.stream.text.Load()
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
	lead, err := l.stream.take(ctx)
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
	l.known = l.stream.remembers(lead.Known)
	l.d.cfg.Metrics.Leading(lead.Epoch)
	l.stream.board.leads(l.d.cfg.Replication.Name, lead.Epoch)
	return conn, nil
}

// tell hands a turn to the driver and waits until it was taken in.
func (l *logReader) tell(ctx context.Context, t turn) error {
	t.done = make(chan struct{})
	select {
	case l.turns <- t:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.finishing:
		return nil
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connection makes the slot sound if it is not, and streams. nil: finished.
func (l *logReader) connection(ctx, waiting context.Context) error {
	l.decoder.Reset()
	connected, err := l.makeSound(waiting)
	if err != nil {
		return err
	}
	connected.Streaming = true
	tell := func(ctx context.Context) error { return l.tell(ctx, turn{connected: connected}) }
	if err := beside(ctx, l.conn, tell); err != nil {
		return err
	}
	l.conn.WaitLonger(l.stream.silence.patience(l.d.cfg.Replication.SenderTimeout))
	if err := l.conn.Start(ctx); err != nil {
		return err
	}
	// The log has to get past the insert position read above even if nobody
	// writes: the Core looks at every row up to it.
	if _, err := replication.Heartbeat(ctx, postgres.On(l.d.cfg.Pool)); err != nil {
		return err
	}
	l.d.cfg.Log.Info().Str("slot", l.d.cfg.Replication.Slot).Msg("streaming")
	l.stream.board.happened("slot", "streaming from slot "+l.d.cfg.Replication.Slot)
	l.d.cfg.Metrics.Connected()
	judged := l.known
	l.judged.Store(&judged)
	l.streaming.Store(l.conn)
	defer l.streaming.Store(nil)
	return l.read(ctx)
}

// kill ends a streaming connection from outside; the next one begins anew.
func (l *logReader) kill() {
	if conn := l.streaming.Load(); conn != nil {
		conn.Kill()
	}
}

// read receives until the connection ends or the driver has finished.
func (l *logReader) read(ctx context.Context) error {
	b := <-l.spare
	defer func() { l.giveBack(b) }()
	status := time.Now().Add(l.statusEvery)
	for {
		m, err := l.conn.Receive(l.patience(b, status))
		if err != nil {
			return err
		}
		reply := m.ReplyRequested
		l.received = max(l.received, m.WALEnd)
		switch m.Kind {
		case replication.Data:
			if b.Empty() {
				b.began = time.Now()
			}
			if err := l.decoder.Decode(m.Data, &b.Batch); err != nil {
				return err
			}
		case replication.Keepalive:
			b.walEnd = m.WALEnd
		case replication.Notice:
			l.d.cfg.Log.Warn().Str("sqlstate", m.Code).Str("notice", m.Warning).Msg("the server warns about the slot")
			if err := l.lookAtPublication(ctx); err != nil {
				return err
			}
		}
		full := l.full(b, m.Kind == replication.Idle)
		if full {
			if b, err = l.handOver(ctx, b); err != nil || b == nil {
				return err
			}
		}
		// The clock is looked at once per read and per batch, either of which may have
		// been waited for, not once per row.
		if !full && !reply && l.conn.Buffered() {
			continue
		}
		now := time.Now()
		if m.Kind != replication.Idle {
			l.d.cfg.Metrics.Heard(now)
		}
		if reply || now.After(status) {
			if err := l.feedBack(); err != nil {
				return err
			}
			status = now.Add(l.statusEvery)
		}
		select {
		case <-l.finishing:
			return l.stop(ctx)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
}

// lookAtPublication ends the connection where a warning came because the
// publication was away. Version 18 then passes rows over and goes on (seen with
// 18.4; earlier ones end the stream): no later row may be taken from this
// connection, or it would overtake them.
func (l *logReader) lookAtPublication(ctx context.Context) error {
	name := l.d.cfg.Replication.Publication
	mark, err := replication.WatchPublication(ctx, postgres.On(l.d.cfg.Pool), name)
	if err != nil {
		return err
	}
	if damage := replication.Damage(l.known.Publication, mark); damage != "" {
		return fmt.Errorf("publication %s %s: %w", name, damage, replication.ErrPublicationGone)
	}
	return nil
}

// feedBack sends the confirmed position.
func (l *logReader) feedBack() error {
	confirm := outbox.LSN(l.confirm.Load())
	if confirm > l.conn.Confirmed() {
		if err := failpoint.Here(failpoint.BeforeConfirm); err != nil {
			return err
		}
	}
	return l.conn.SendStatus(confirm)
}

// patience is until when to wait for more of the log.
func (l *logReader) patience(b *batch, status time.Time) time.Time {
	if gathered := b.began.Add(gatherFor); !b.Empty() && gathered.Before(status) {
		return gathered
	}
	return status
}

// full says that the batch is to be handed over: it is large, or nothing more
// is there to be read, so that nothing waits for a timer. While much more is to
// come, small batches would cost Kafka and us more than the rows in them.
func (l *logReader) full(b *batch, idle bool) bool {
	switch {
	case b.Empty() && b.walEnd == 0:
		return false
	case b.Rows() >= l.mostRows() || b.Bytes() >= batchBytes:
		return true
	case l.conn.Buffered():
		return false
	}
	return idle || b.Rows() == 0 || !l.conn.CatchingUp() || time.Since(b.began) >= gatherFor
}

// mostRows is how many rows are handed over at once: no more than the limit lets
// come, so that they are spread over the second.
func (l *logReader) mostRows() int {
	if n := int(l.atOnce.Load()); n > 0 {
		return min(batchRows, n)
	}
	return batchRows
}

// handOver gives the batch to the driver, however long that takes, and goes on
// with status messages meanwhile. It returns an empty batch; nil: finished.
func (l *logReader) handOver(ctx context.Context, b *batch) (*batch, error) {
	ticker := time.NewTicker(l.statusEvery)
	defer ticker.Stop()
	for {
		select {
		case l.batches <- b:
			return <-l.spare, nil
		case <-ticker.C:
			if err := l.feedBack(); err != nil {
				return b, err
			}
		case <-l.finishing:
			l.giveBack(b)
			return nil, l.stop(ctx)
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
}

// giveBack takes back a batch that was used up; the driver calls it.
func (l *logReader) giveBack(b *batch) {
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

// stop sends the last position and leaves the server in order, so that a
// standby can take over at once.
func (l *logReader) stop(ctx context.Context) error {
	confirm := outbox.LSN(l.confirm.Load())
	if err := l.conn.SendStatus(confirm); err != nil {
		return nil //nolint:nilerr // the position is confirmed again by the next leader's own work
	}
	if err := l.conn.Stop(ctx); err != nil {
		return nil //nolint:nilerr // as above
	}
	l.known.Stopped = l.conn.Confirmed()
	if err := l.stream.store.Identify(ctx, l.known); err != nil {
		l.d.cfg.Log.Warn().Err(err).Msg("the position of the clean stop was not noted")
	}
	l.conn.Close(ctx)
	return nil
}

// finish is the driver's end of a clean stop: everything is drained.
func (l *logReader) finish(ctx context.Context) error {
	close(l.finishing)
	l.conn.Wake()
	select {
	case <-l.finished:
	case <-time.After(finishWithin):
	case <-ctx.Done():
	}
	return nil
}
