// Package demo shows outbox-cdc at work. It starts its own PostgreSQL and Kafka (or uses given ones), writes
// orders like an application, and checks the output with a consumer of its own: whether every committed row
// arrived, once, in the order of commits per key. It does not look inside the stream that it judges. cmd
// provides the stream and starts it as `outbox-cdc run` does.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Options configure one demo.
type Options struct {
	// Rows to insert; 0: as many as Duration allows.
	Rows int
	// Rate is in rows per second; 0: as fast as possible.
	Rate int
	// Duration of inserting; 0: until Rows are inserted.
	Duration time.Duration
	// Outage shuts down the in-process Kafka for this long, at half time.
	Outage time.Duration
	// LoseSlot drops the replication slot at half time.
	LoseSlot bool
	// ExactlyOnce selects exactly-once delivery, and kills the stream twice at half time.
	ExactlyOnce bool
	// Brokers of a real Kafka, to be used instead of the in-process one.
	Brokers []string
	// Postgres is the connection string of a real database, to be used instead of the private one. The demo
	// makes a schema there and drops it at the end.
	Postgres string
	// Serve keeps everything running after the last row is done, until ctx ends.
	Serve bool
	// JSON prints only the summary, as one JSON object.
	JSON bool

	// Out is where the output goes. Live: it is a terminal with Width columns, where lines can be
	// overwritten.
	Out   io.Writer
	Live  bool
	Width int

	// Init prepares the database for the stream, as `outbox-cdc init` does.
	Init func(ctx context.Context, t Target) error
	// Stream runs the stream until ctx ends and everything in flight is drained, or until kill ends. With
	// ExactlyOnce, the end of kill kills the stream's process.
	Stream func(ctx, kill context.Context, t Target) error
}

// Target is where the stream reads and writes.
type Target struct {
	DSN         string // of the database
	Schema      string
	Table       string // in the layout of the profile "native"
	Stream      string // name of the stream
	Slot        string
	Publication string
	Brokers     []string
	// Fencing is the cluster's fencing; empty: the default. The in-process Kafka returns no marker for a
	// fence, so a start would wait for one.
	Fencing string
	Topic   string // the topic of every row
	// Journal is the topic of the journal; empty: at-least-once delivery.
	Journal string
	// Serving is to be called with the address of the operator's page once it is served; nil: no page is
	// wanted.
	Serving func(url string)
}

// Summary is the result of the demo, and its JSON form.
type Summary struct {
	Inserted      int     `json:"inserted"`   // rows committed
	Published     int     `json:"published"`  // records read from the topic
	Sent          int     `json:"sent"`       // rows marked SENT in the table
	Failed        int     `json:"failed"`     // rows marked FAILED
	Lost          int     `json:"lost"`       // committed rows that are not in the topic
	Duplicates    int     `json:"duplicates"` // events that are in the topic more than once
	OutOfOrder    int     `json:"out_of_order"`
	Seconds       float64 `json:"seconds"` // from the first INSERT until the last row is SENT
	RowsPerSecond float64 `json:"rows_per_second"`
	Latency       Latency `json:"latency_ms"` // from COMMIT to the consumer
	Postgres      string  `json:"postgres"`
	Kafka         string  `json:"kafka"`
}

// Latency is in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Good reports whether no row was lost, duplicated, out of order or left unsent.
func (s *Summary) Good() bool {
	return s.Lost == 0 && s.Duplicates == 0 && s.OutOfOrder == 0 && s.Failed == 0 && s.Sent == s.Inserted
}

// ErrBad says that the demo was not Good.
var ErrBad = errors.New("the demo found rows lost, duplicated, out of order or not SENT")

// giveUpAfter is how long the demo waits without any progress, once everything is written.
const giveUpAfter = 60 * time.Second

// Run runs a demo. When ctx ends, it stops writing, lets the remaining rows arrive, and sums up. When kill
// ends, it stops at once. In both cases nothing is left behind.
func Run(ctx, kill context.Context, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	display := &display{o: o}
	pg, kafka := "a private PostgreSQL", "an in-process Kafka"
	if o.Postgres != "" {
		pg = "on your PostgreSQL"
	}
	if len(o.Brokers) > 0 {
		kafka = "your Kafka"
	}
	display.say(fmt.Sprintf("starting %s and %s", pg, kafka))
	world, err := build(ctx, o)
	if ctx.Err() != nil {
		err = ctx.Err() // the demo ended early because of ctx
	}
	if world != nil {
		defer func() { err = errors.Join(err, world.close()) }()
	}
	if err != nil {
		return err
	}
	r := &run{Options: o, world: world, display: display, writer: &writer{world: world}, checker: newChecker(world.partitions)}
	summary, err := r.play(ctx, kill)
	if err != nil {
		return err
	}
	display.sum(summary)
	if !summary.Good() {
		return ErrBad
	}
	return nil
}

func (o *Options) check() error {
	switch {
	case o.Rows < 0 || o.Rate < 0 || o.Duration < 0 || o.Outage < 0:
		return errors.New("--rows, --rate, --duration and --outage cannot be negative")
	case o.Outage > 0 && len(o.Brokers) > 0:
		return errors.New("--outage takes the in-process Kafka away; with --brokers stop your broker yourself")
	case o.ExactlyOnce && len(o.Brokers) == 0:
		return errors.New("--exactly-once takes a real Kafka (3.6 or later): add --brokers HOST:PORT. The in-process one has no markers of transactions to ask for")
	case o.ExactlyOnce && o.Serve:
		return errors.New("--serve keeps the operator's page up, and with --exactly-once there is none: choose one")
	case o.Serve && o.JSON:
		return errors.New("--serve is for people, --json is not: choose one")
	case o.Init == nil || o.Stream == nil:
		return errors.New("the demo was given no stream")
	}
	if o.Rows == 0 && o.Duration == 0 {
		o.Duration = 15 * time.Second
	}
	if o.Rows == 0 && o.Rate == 0 {
		o.Rate = 1000
	}
	return nil
}

// half reports whether it is time for the outage and the loss of the slot.
func (o *Options) half(inserted int, elapsed time.Duration) bool {
	return o.Rows > 0 && inserted >= o.Rows/2 || o.Duration > 0 && elapsed >= o.Duration/2
}
