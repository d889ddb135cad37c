package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/pipeline"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/survey"
)

func sweepCommand(io streams) *cobra.Command {
	w := &sweepRun{io: io}
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Publish what is PENDING once, with no slot at all",
		Long: `Publishes the rows that are PENDING and due, each table's in the order of its order columns, marks
them, and ends when nothing more is found: for cron, where no replication slot is wanted. It needs
what init --no-slot makes, no slot, no publication and no role with REPLICATION.

It takes the stream's leadership, so that it refuses while run leads the stream, and fences former
leaders in Kafka as run does. Rows that Kafka refuses are charged an attempt and left to the next
sweep; parks are kept. Where Kafka cannot be used it gives up after --give-up-after; rows that were
not sent stay PENDING.

Exit codes: 0 done, also where rows were refused (the summary counts them); 1 something kept it from
finishing; 3 a process leads the stream.`,
		Example: `  outbox-cdc sweep --once
  outbox-cdc sweep --once --stream orders --json --log-level error`,
	}
	w.file, w.logs = configFlag(c), addLogFlags(c)
	streamFlag(c, &w.stream)
	jsonFlag(c, &w.json)
	c.Flags().BoolVar(&w.once, "once", false, "sweep once and end (the only way there is; run sweeps by itself)")
	c.Flags().DurationVar(&w.giveUp, "give-up-after", 30*time.Second, "end with an error after this long without progress")
	c.RunE = func(c *cobra.Command, _ []string) error { return w.run(c.Context()) }
	return c
}

// sweepRun is one run of the command sweep.
type sweepRun struct {
	io         streams
	file       *string
	logs       *logFlags
	stream     string
	once, json bool
	giveUp     time.Duration
}

// sweepReport is the JSON of sweep.
type sweepReport struct {
	// Streams that were swept.
	Streams []swept `json:"streams"`
}

type swept struct {
	// Stream is the name of the stream.
	Stream string `json:"stream"`
	// Published rows: Kafka acknowledged them.
	Published uint64 `json:"published_rows"`
	// Refused is how often a row was refused and charged an attempt.
	Refused uint64 `json:"refused_rows"`
	// GivenUp are the rows that became FAILED.
	GivenUp uint64 `json:"failed_rows"`
	// Seconds that the sweep took.
	Seconds float64 `json:"seconds"`
	// Left counts, for each table, the rows that are not published yet: not due, parked, or inserted meanwhile.
	Left []status.Table `json:"left"`
	// Parks are the scopes that wait for their next try.
	Parks status.Parks `json:"parks"`
	// Error is why the sweep did not finish.
	Error string `json:"error,omitempty"`
}

func (w *sweepRun) run(ctx context.Context) error {
	if !w.once {
		return usage("sweep needs --once; outbox-cdc run sweeps by itself the rows that its slot missed")
	}
	if w.giveUp <= 0 {
		return usage("--give-up-after %s is not above 0: write a duration such as 10m", w.giveUp)
	}
	log, err := w.logs.logger(w.io.err)
	if err != nil {
		return err
	}
	cfg, chosen, err := load(*w.file, w.stream, chooseStreams)
	if err != nil {
		return err
	}
	var errs []error
	all := []swept{}
	for _, s := range chosen {
		one, err := w.sweep(ctx, cfg, s, log)
		if err != nil {
			one.Error = err.Error()
			errs = append(errs, fmt.Errorf("stream %s: %w", s.Name, err))
		}
		all = append(all, one)
		if !w.json && !errors.Is(err, pipeline.ErrLed) { // otherwise nothing was done
			w.print(&one)
		}
	}
	if w.json {
		errs = append(errs, printJSON(w.io.out, sweepReport{all}))
	}
	err = errors.Join(errs...)
	if errors.Is(err, pipeline.ErrLed) { // a person has to stop the leader, or stop using sweep
		return &failure{exitPermanent, err}
	}
	return err
}

// tellProgress logs how many rows were published so far. It always uses the log, whose lines appear on the
// terminal as well.
func (w *sweepRun) tellProgress(s *pipeline.Stream, log zerolog.Logger, name string) (stop func()) {
	going := newProgress(io.Discard, log, "sweep stream "+name)
	ticker, done := time.NewTicker(time.Second), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				if st := s.Status(); st.Flow != nil {
					going.tell(int(st.Flow.Published), 0, now) // #nosec G115 -- the number of rows in one run
				}
			}
		}
	}()
	return func() { ticker.Stop(); close(done) }
}

func (w *sweepRun) sweep(ctx context.Context, cfg *config.Config, s *config.Stream, log zerolog.Logger) (swept, error) {
	began := time.Now()
	out := swept{Stream: s.Name, Left: []status.Table{}}
	v, commit := build()
	p := &prepared{}
	defer p.close()
	if err := p.add(cfg, s, instruments{metrics: metrics.New(v, commit)}, log.With().Str("stream", s.Name).Logger()); err != nil {
		return out, err
	}
	stop := w.tellProgress(p.streams[0], log, s.Name)
	done, err := p.streams[0].SweepOnce(ctx, w.giveUp)
	stop()
	out.Published, out.Refused, out.GivenUp, out.Parks = done.Published, done.Refused, done.GivenUp, done.Parks
	out.Seconds = time.Since(began).Seconds()
	if ctx.Err() == nil && !errors.Is(err, pipeline.ErrLed) {
		out.Left = survey.Tables(ctx, survey.Config{Name: s.Name, Tables: s.OutboxTables(), Pool: p.pools[0]})
	}
	return out, err
}

func (w *sweepRun) print(s *swept) {
	fmt.Fprintf(w.io.out, "%s: %d published, %d refused, %d FAILED in %.1f s\n", s.Stream, s.Published, s.Refused, s.GivenUp, s.Seconds)
	for i := range s.Left {
		fmt.Fprintf(w.io.out, "  left in %s: %s\n", s.Left[i].Name, tableText(&s.Left[i], time.Now()))
	}
	for _, g := range s.Parks.Top {
		fmt.Fprintf(w.io.out, "  parked: %s (%s): %s\n", g.Scopes(), g.Cause, operator.OneLine(status.Why(g.Example, g.Reason), 200))
	}
}
