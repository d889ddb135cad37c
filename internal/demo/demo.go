// Package demo shows outbox-cdc at work: it brings up a PostgreSQL and a Kafka
// of its own (or uses those it is given), writes orders like an application
// would, and checks with a consumer of its own what comes out: whether every
// committed row arrived, once, in the order of commits per key. It never looks
// inside the stream that it judges; that is handed in by cmd, which starts it
// as `outbox-cdc run` does.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Options of one demo.
type Options struct {
	// Rows to insert; 0: as many as fit into Duration.
	Rows int
	// Rate in rows per second; 0: as fast as it goes.
	Rate int
	// Duration of inserting; 0: until Rows are inserted.
	Duration time.Duration
	// Outage takes the in-process Kafka away for this long, half way through.
	Outage time.Duration
	// LoseSlot drops the replication slot half way through.
	LoseSlot bool
	// ExactlyOnce has the stream deliver so, and kills it twice half way through.
	ExactlyOnce bool
	// Brokers of a real Kafka to use instead of the in-process one.
	Brokers []string
	// Postgres is the connection string of a real database to use instead of
	// the private one. The demo makes a schema there, and drops it at the end.
	Postgres string
	// Serve keeps everything up after the last row is through, until ctx ends.
	Serve bool
	// JSON asks for the summary as one JSON object and nothing else.
	JSON bool

	// Out takes what people see. Live says that it is a terminal of Width
	// columns, where lines may be drawn over.
	Out   io.Writer
	Live  bool
	Width int

	// Init prepares the database for the stream, as `outbox-cdc init` does.
	Init func(ctx context.Context, t Target) error
	// Stream streams until ctx ends and everything in flight is drained, or
	// until kill ends. With ExactlyOnce the end of kill is that of its process.
	Stream func(ctx, kill context.Context, t Target) error
}

// Target is where the stream is to read and write.
type Target struct {
	DSN         string // of the database
	Schema      string
	Table       string // in the layout of profile native
	Stream      string // name of the stream
	Slot        string
	Publication string
	Brokers     []string
	// Fencing is the cluster's; empty: the default. The in-process Kafka shows no marker of a fence, so
	// a start would wait for it.
	Fencing string
	Topic   string // the topic of every row
	// Journal is the topic that names what was published; empty: rows are delivered at least once.
	Journal string
	// Serving is to be called with the address of the operator's page, once it
	// is served; nil: none is wanted.
	Serving func(url string)
}

// Summary is what the demo found, and its JSON form.
type Summary struct {
	Inserted      int     `json:"inserted"`   // rows committed
	Published     int     `json:"published"`  // records read from the topic
	Sent          int     `json:"sent"`       // rows marked SENT in the table
	Failed        int     `json:"failed"`     // rows marked FAILED
	Lost          int     `json:"lost"`       // committed, not in the topic
	Duplicates    int     `json:"duplicates"` // in the topic more than once
	OutOfOrder    int     `json:"out_of_order"`
	Seconds       float64 `json:"seconds"` // from the first insert to the last row SENT
	RowsPerSecond float64 `json:"rows_per_second"`
	Latency       Latency `json:"latency_ms"` // from COMMIT to the consumer
	Postgres      string  `json:"postgres"`
	Kafka         string  `json:"kafka"`
}

// Latency in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Good says that nothing was lost, duplicated, out of order or left unsent.
func (s *Summary) Good() bool {
	return s.Lost == 0 && s.Duplicates == 0 && s.OutOfOrder == 0 && s.Failed == 0 && s.Sent == s.Inserted
}

// ErrBad is what Run returns after a demo that was not Good.
var ErrBad = errors.New("the demo found rows lost, duplicated, out of order or not SENT")

// How long the demo waits, once everything is written, while nothing moves.
const giveUpAfter = 60 * time.Second

// Run runs a demo. When ctx ends it stops writing, lets the rest arrive and
// sums up; when kill ends it stops at once. Either way nothing is left behind.
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
		err = ctx.Err() // whatever it broke off
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

// half is when the outage and the loss of the slot come.
func (o *Options) half(inserted int, elapsed time.Duration) bool {
	return o.Rows > 0 && inserted >= o.Rows/2 || o.Duration > 0 && elapsed >= o.Duration/2
}
