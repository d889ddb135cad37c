package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The load of B3 comes over writers connections, one row in each transaction.
const (
	writers  = 4
	settling = 2 * time.Second // the first of a run are not counted
	// While rows are written, few records go to the broker by themselves.
	probesPerSecond = 50
)

// trace has when each row was committed (or sent) and when it was read, by one
// clock.
type trace struct {
	mu       sync.Mutex
	begun    map[int]time.Time
	received map[int]time.Time
	copies   int // records that were read again
}

func newTrace() *trace { return &trace{begun: map[int]time.Time{}, received: map[int]time.Time{}} }

func (tr *trace) begin(i int, at time.Time) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.begun[i] = at
}

// receivedAfter is when the first row that was begun after a moment was read.
func (tr *trace) receivedAfter(after time.Time) (at time.Time, ok bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i, read := range tr.received {
		if tr.begun[i].After(after) && (!ok || read.Before(at)) {
			at, ok = read, true
		}
	}
	return at, ok
}

// milliseconds from begin to read, of rows begun after a moment.
func (tr *trace) milliseconds(after time.Time) (took []float64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i, begun := range tr.begun {
		if read, ok := tr.received[i]; ok && begun.After(after) {
			took = append(took, float64(read.Sub(begun).Microseconds())/1000)
		}
	}
	return took
}

// repeated is how many records were read again.
func (tr *trace) repeated() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.copies
}

// missing counts what was committed and has not been read yet.
func (tr *trace) missing() (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i := range tr.begun {
		if _, read := tr.received[i]; !read {
			n++
		}
	}
	return n
}

// complete says what has not been read yet.
func (tr *trace) complete() error {
	if n := tr.missing(); n > 0 {
		return fmt.Errorf("%d rows are not readable", n)
	}
	return nil
}

// follow notes when each record of a topic is read, until the round ends.
func follow(t *testing.T, k *harness.Cluster, topic string, tr *trace, further ...kgo.Opt) {
	t.Helper()
	client, err := k.Client(append(further, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMinBytes(1))...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			now := time.Now()
			tr.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) {
				switch i := rowNumber(r.Value); {
				case i < 0: // not a row's
				case tr.received[i].IsZero():
					tr.received[i] = now
				default:
					tr.copies++
				}
			})
			tr.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
}

// latency is B3 at one rate.
func (b *bench) latency(t *testing.T, perSecond int, lasting time.Duration) []sample {
	w := b.newWorld(t, standard(im2be(), perSecond*int(lasting.Seconds())))
	w.prime()
	alone := b.brokerAlone(t, perSecond, lasting)
	cpu := b.cpu(0)
	p := w.run()
	p.ready()
	tr := newTrace()
	follow(t, w.kafka, w.topic, tr)
	broker := b.probe(t)
	loaded, over := context.WithCancel(t.Context())
	defer over()
	var probing sync.WaitGroup
	probing.Go(func() { broker.produce(loaded, probesPerSecond) })
	began := time.Now()
	sent := w.writeSteadily(tr, perSecond)
	over()
	probing.Wait()
	meanwhile := broker.milliseconds(settlingOf(lasting))
	await(t, time.Minute, 10*time.Millisecond, tr.complete)
	s := sample{cpu: b.cpu(p.PID()).since(cpu)}
	if peak, err := peakOf(p.PID()); err == nil {
		s.peak = &peak
	}
	w.delivered(p, time.Minute)
	p.Stop(30 * time.Second)
	w.judge()
	took := tr.milliseconds(began.Add(settlingOf(lasting)))
	p50, p99, visible := s, s, s
	p50.value, p99.value, visible.value = percentile(took, 0.5), percentile(took, 0.99), percentile(sent, 0.99)
	visible.note = fmt.Sprintf("of %d rows, one after the other read by their id every millisecond", len(sent))
	return []sample{
		p50.over(percentile(alone, 0.5)), p99.over(percentile(alone, 0.99)), visible,
		{value: percentile(meanwhile, 0.5)},
		{value: percentile(meanwhile, 0.99)},
	}
}

// writeSteadily commits the job's rows, one by one, and meanwhile asks for
// single rows whether they are SENT: how long that took, in milliseconds.
func (w *world) writeSteadily(tr *trace, perSecond int) (sent []float64) {
	w.t.Helper()
	latest := make(chan int, 1) // a row that was just committed
	began := time.Now()
	watch, stop := context.WithCancel(w.t.Context())
	conn := w.dbs[0].Conn(w.t)
	var prober errgroup.Group
	prober.Go(func() error {
		for {
			select {
			case i := <-latest:
				took, err := w.untilSent(watch, conn, i)
				if watch.Err() != nil {
					return nil //nolint:nilerr // the load is over
				}
				if err != nil {
					return err
				}
				if time.Since(began) > settlingOf(time.Duration(w.job.rows/perSecond)*time.Second) {
					sent = append(sent, float64(took.Microseconds())/1000)
				}
			case <-watch.Done():
				return nil
			}
		}
	})
	w.write(w.t.Context(), tr, 0, w.job.rows, perSecond, latest)
	stop()
	if err := prober.Wait(); err != nil {
		w.t.Fatalf("looking whether rows are SENT: %v", err)
	}
	return sent
}

// write commits rows one by one at a rate, until there are no more or ctx ends.
// Who wants to know gets one now and then that was just committed.
func (w *world) write(ctx context.Context, tr *trace, from, to, perSecond int, latest chan<- int) {
	w.t.Helper()
	var g errgroup.Group
	// With an argument it is prepared, as an application has it.
	sql := w.insert(w.tables[0], "true", "$1::int", "$1::int")
	began := time.Now()
	for n := range writers {
		conn := w.dbs[0].Conn(w.t)
		g.Go(func() error {
			// Each writer has the keys that are its number modulo writers, so that
			// rows of one key are committed in the order of their numbers.
			for i := from + n; i < to; i += writers {
				if !until(ctx, began.Add(time.Duration(i-from)*time.Second/time.Duration(perSecond))) {
					return nil
				}
				if _, err := conn.Exec(context.WithoutCancel(ctx), sql, i); err != nil {
					return err
				}
				tr.begin(i, time.Now())
				select {
				case latest <- i:
				default:
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		w.t.Errorf("writing rows: %v", err)
	}
}

// until waits for a moment; false: the context ended.
func until(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// probe is the broker's own time from produce to consume: records of the bars'
// size that go there and back without us.
type probe struct {
	t      *testing.T
	client *kgo.Client
	trace  *trace
	began  time.Time
}

// probe makes a probe with a topic of its own.
func (b *bench) probe(t *testing.T) *probe {
	t.Helper()
	k := b.kafka()
	topic := k.Topic(t, 6)
	client, err := k.Client(kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	p := &probe{t: t, client: client, trace: newTrace()}
	follow(t, k, topic, p.trace)
	return p
}

// produce sends so many records a second until ctx ends.
func (p *probe) produce(ctx context.Context, perSecond int) {
	p.began = time.Now()
	for i := 0; until(ctx, p.began.Add(time.Duration(i)*time.Second/time.Duration(perSecond))); i++ {
		value := make([]byte, 256)
		copy(value, fmt.Sprintf("%d|", i))
		p.trace.begin(i, time.Now())
		p.client.Produce(context.WithoutCancel(ctx), &kgo.Record{Key: fmt.Appendf(nil, "%d", i), Value: value}, nil)
	}
}

// milliseconds waits for the last record and gives what each took, but for those
// of the run's beginning.
func (p *probe) milliseconds(beginning time.Duration) []float64 {
	p.t.Helper()
	await(p.t, time.Minute, 10*time.Millisecond, p.trace.complete)
	return p.trace.milliseconds(p.began.Add(beginning))
}

// brokerAlone is the broker's own time at the rows' rate, with nothing else running.
func (b *bench) brokerAlone(t *testing.T, perSecond int, lasting time.Duration) []float64 {
	t.Helper()
	p := b.probe(t)
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	p.produce(ctx, perSecond)
	return p.milliseconds(settlingOf(lasting))
}

// settlingOf is how much of a run's beginning does not count.
func settlingOf(lasting time.Duration) time.Duration { return min(settling, lasting/4) }

// untilSent is how long a row that was just committed takes to be SENT.
func (w *world) untilSent(ctx context.Context, conn *pgx.Conn, i int) (time.Duration, error) {
	began := time.Now()
	for {
		var sent bool
		err := conn.QueryRow(ctx, `SELECT bool_or(status = 'SENT') FROM `+w.tables[0]+` WHERE aggregate_id = lpad(to_hex($1::int), 32, '0')::uuid`, i%w.job.keys).Scan(&sent)
		if err != nil || sent {
			return time.Since(began), err
		}
		if !until(ctx, time.Now().Add(time.Millisecond)) {
			return 0, ctx.Err()
		}
	}
}
