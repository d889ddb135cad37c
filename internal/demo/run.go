package demo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

type run struct {
	Options
	world   *world
	display *display
	writer  *writer
	checker *checker
	kill    atomic.Pointer[context.CancelFunc] // ends the stream's process
}

// play runs writer, stream, consumer and display until everything is done.
func (r *run) play(ctx, kill context.Context) (*Summary, error) {
	streamCtx, stopStream := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStream()
	streamed := make(chan struct{})
	if !r.JSON {
		r.world.target.Serving = func(url string) { r.display.say("the operator's page: " + url) }
	}
	stream := func(all context.Context) error {
		defer close(streamed)
		return r.stream(streamCtx, all)
	}
	consume := func(all context.Context) error { return r.checker.consume(all, r.world) }
	var seconds float64
	err := wait.While(kill, func(all context.Context) (err error) {
		defer stopStream()
		seconds, err = r.direct(ctx, all)
		if err != nil {
			return err
		}
		if r.Serve {
			r.display.rest("every row is through; the page stays up until Ctrl-C")
			select {
			case <-ctx.Done():
			case <-all.Done():
			}
		}
		stopStream()
		<-streamed
		return r.checker.finish(all, r.world)
	}, stream, consume, r.observe)
	if err != nil {
		return nil, err
	}
	if kill.Err() != nil {
		return nil, errors.New("stopped before the end")
	}
	return r.sumUp(seconds)
}

// stream runs the stream until ctx ends. After each kill it starts the stream again.
func (r *run) stream(ctx, all context.Context) error {
	for {
		life, kill := context.WithCancel(all)
		r.kill.Store(&kill)
		err := r.Stream(ctx, life, r.world.target)
		killed := life.Err() != nil
		kill()
		switch {
		case killed && all.Err() == nil && ctx.Err() == nil:
		case err != nil:
			return fmt.Errorf("the stream ended: %w", err)
		case ctx.Err() == nil && all.Err() == nil:
			return errors.New("the stream ended by itself")
		default:
			return nil
		}
	}
}

// killTwice kills the stream, and kills it again once the next one has published something.
func (r *run) killTwice(ctx context.Context) {
	for range 2 {
		before := r.checker.distinct()
		for n := before; n == before && n < r.writer.inserted(); n = r.checker.distinct() {
			if wait.Sleep(ctx, 10*time.Millisecond) != nil {
				return
			}
		}
		(*r.kill.Load())()
		r.display.event("the stream was killed")
	}
}

// direct writes, causes the trouble at half time, and waits until every row is done. It returns the seconds
// from the first INSERT to then.
func (r *run) direct(ctx, all context.Context) (float64, error) {
	if err := r.world.awaitSlot(ctx, all); err != nil {
		return 0, err
	}
	r.display.say("writing orders: " + r.plan())
	began := time.Now()
	r.display.start(began)
	group, writing := errgroup.WithContext(all)
	// Ctrl-C ends only the writing.
	writeCtx, stop := context.WithCancel(writing)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	group.Go(func() error {
		defer stop()
		return r.writer.write(writeCtx, r.Rows, r.Rate, r.Duration)
	})
	group.Go(func() error { return r.trouble(writeCtx, writing, began) })
	if err := group.Wait(); err != nil {
		return 0, err
	}
	err := r.await(all)
	return time.Since(began).Seconds(), err
}

// trouble waits for half time and then causes the outage or the loss. It goes on after the last INSERT, so
// that everything comes back.
func (r *run) trouble(writing, all context.Context, began time.Time) error {
	if r.Outage == 0 && !r.LoseSlot && !r.ExactlyOnce {
		return nil
	}
	for !r.half(r.writer.inserted(), time.Since(began)) {
		if wait.Sleep(writing, 10*time.Millisecond) != nil && !r.half(r.writer.inserted(), time.Since(began)) {
			return nil // the writing ended before
		}
	}
	if r.LoseSlot {
		if err := r.world.loseSlot(all); err != nil {
			return err
		}
		r.display.event("the replication slot was dropped")
	}
	if r.ExactlyOnce {
		r.killTwice(all)
	}
	if r.Outage > 0 {
		r.world.gate.shut()
		r.display.event(fmt.Sprintf("Kafka is gone for %v", r.Outage))
		_ = wait.Sleep(all, r.Outage)
		if err := r.world.gate.open(); err != nil {
			return err
		}
		r.display.event("Kafka is back")
	}
	return nil
}

// await waits until every committed row was consumed and none is PENDING, or until nothing has moved for
// giveUpAfter. In the latter case the summary shows what is missing.
func (r *run) await(ctx context.Context) error {
	moved, last := time.Now(), [2]int{}
	for {
		now := [2]int{r.checker.distinct(), 0}
		if now[0] >= r.writer.inserted() {
			pending, err := r.world.pending(ctx)
			if err != nil || pending == 0 {
				return err
			}
			now[1] = pending
		}
		if now != last {
			moved, last = time.Now(), now
		}
		if time.Since(moved) > giveUpAfter {
			r.display.event(fmt.Sprintf("nothing moved for %v: giving up", giveUpAfter))
			return nil
		}
		if wait.Sleep(ctx, 50*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
}

// observe draws the progress.
func (r *run) observe(ctx context.Context) error {
	every := time.Second
	if r.Live && !r.JSON {
		every = 500 * time.Millisecond
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var f frame
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case f.at = <-ticker.C:
		}
		// The order matters: no later stage may seem to be ahead of an earlier one.
		r.checker.show(&f)
		f.inserted, f.rows = r.writer.inserted(), r.Rows
		if f.at.Sub(asked) >= askEvery {
			if err := r.world.look(ctx, &f); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			asked = f.at
		}
		r.display.draw(f)
	}
}

// askEvery limits queries to the database, because the display is drawn more often.
const askEvery = 400 * time.Millisecond

// sumUp judges by the database's own count of committed rows.
func (r *run) sumUp(seconds float64) (*Summary, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s := &Summary{Seconds: round(seconds, 3), Postgres: r.world.postgresVersion, Kafka: r.world.kafkaVersion}
	committed, err := r.world.count(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("counting what was committed: %w", err)
	}
	r.checker.judge(committed, s)
	if seconds > 0 {
		s.RowsPerSecond = round(float64(s.Published)/seconds, 1)
	}
	return s, nil
}

func (r *run) plan() string {
	amount, pace := fmt.Sprintf("for %v", r.Duration), "as fast as it goes"
	if r.Rows > 0 {
		amount = thousands(r.Rows) + " rows"
		if r.Duration > 0 {
			amount += fmt.Sprintf(", at most %v", r.Duration)
		}
	}
	if r.Rate > 0 {
		pace = thousands(r.Rate) + " rows/s"
	}
	return amount + ", " + pace
}
