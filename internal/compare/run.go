package compare

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Config configures one comparison. All fields except IgnoreHeaders are required.
type Config struct {
	Stream string
	// Access is for a role with REPLICATION. Its connection is an ordinary one.
	Access      postgres.Access
	Publication string
	Tables      []*outbox.Table
	// Partitions maps the leaves of partitioned tables ("schema.name") to their tables.
	Partitions map[string]*outbox.Table
	// Readers are by Kafka cluster. Run stops their reading; the caller closes them.
	Readers map[string]*sink.Reader
	// Partition returns a key's partition of n, as the sink chooses it.
	Partition func(by outbox.Partitioner, key []byte, n int) int32
	// Check reads what else a row needs to become a record, and its state.
	Check func(context.Context, []*outbox.Row) ([]outbox.Checked, error)
	// For is how long rows are taken. Settle is how long records are awaited after that. A record within
	// Settle of the beginning may belong to a row from before it.
	For, Settle time.Duration
	// IgnoreHeaders are the headers that are not compared.
	IgnoreHeaders []string
	// MaxFrame is the longest WAL message in bytes that is kept whole. Of a longer one only the short values
	// are kept, and its row cannot become a record.
	MaxFrame int
	// Examples is the largest number of examples of each kind.
	Examples int
	// Limit is the largest number of rows and records that wait for a match.
	Limit int
	// Began is called once rows are taken.
	Began func()
}

// readEvery is how often the WAL is read.
const readEvery = 500 * time.Millisecond

// Run compares until cfg.For and cfg.Settle have passed, or every row has its record. If ctx ends, Run ends
// early and returns what was found until then.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	wal, err := openWAL(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	defer wal.close()
	r := &run{cfg: cfg, wal: wal, since: time.Now(), wanted: map[topicName]bool{}}
	r.topics = newTopics(background, cfg.Readers, r.since)
	r.comparison = New(r.partition, cfg.IgnoreHeaders, cfg.Examples)
	for _, t := range cfg.Tables { // topics that are known without any row
		for _, topic := range t.Mapping.Topic.Known() {
			if err := r.topics.follow(topicName{t.Mapping.Cluster.Default, topic}); err != nil {
				return nil, err
			}
		}
	}
	cfg.Began()
	return r.run(ctx, background)
}

type run struct {
	cfg        Config
	wal        *walReader
	topics     *topics
	comparison *Comparison
	since      time.Time
	// wanted are topics that rows name and that no broker has yet.
	wanted map[topicName]bool
}

// partition returns the partition of a key in a topic that is read; -1 for other topics. If several clusters
// have the topic, the first one read counts.
func (r *run) partition(by outbox.Partitioner, topic string, key []byte) int32 {
	for cluster := range r.cfg.Readers {
		if n := r.topics.known[topicName{cluster, topic}]; n > 0 {
			return r.cfg.Partition(by, key, n)
		}
	}
	return -1
}

func (r *run) run(ctx, background context.Context) (*Report, error) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	rowsUntil := r.since.Add(r.cfg.For)
	var until time.Time // rows were taken up to this time
	for {
		select {
		case <-ctx.Done():
			return r.finish(background, until)
		case err := <-r.topics.errors:
			return nil, fmt.Errorf("reading topics: %w", err)
		case rec := <-r.topics.records:
			r.comparison.Record(rec)
			if err := r.bounded(); err != nil {
				return nil, err
			}
			continue
		case <-tick.C:
		}
		now := time.Now()
		if until.IsZero() {
			if err := r.readWAL(ctx); err != nil {
				if ctx.Err() != nil {
					return r.finish(background, until)
				}
				return nil, err
			}
			if !now.Before(rowsUntil) {
				until = now
			}
		}
		for name := range r.wanted {
			if err := r.topics.follow(name); err != nil {
				return nil, err
			}
			if r.topics.known[name] > 0 {
				delete(r.wanted, name)
			}
		}
		if !until.IsZero() && (len(r.comparison.expected) == 0 || now.After(until.Add(r.cfg.Settle))) {
			return r.finish(background, until)
		}
	}
}

func (r *run) readWAL(ctx context.Context) error {
	var rows, lacking []*outbox.Row // lacking: rows whose headers are in a table of their own
	places := map[*outbox.Row]int{}
	err := r.wal.read(ctx, func(row *outbox.Row) {
		if !row.Pending {
			return // inserted in another state: nobody has to send it
		}
		rows = append(rows, row)
		if name := (topicName{row.Cluster, row.Topic}); row.Err == nil && r.topics.known[name] == 0 {
			r.wanted[name] = true
		}
		if row.Table.Mapping.HeadersTable.Name != "" {
			lacking, places[row] = append(lacking, row), len(rows)-1
		}
	})
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		answers, err := r.cfg.Check(ctx, lacking)
		if err != nil {
			return fmt.Errorf("reading headers: %w", err)
		}
		for i := range answers {
			rows[places[answers[i].Row]] = answers[i].Latest()
		}
	}
	for _, row := range rows {
		r.comparison.Row(row)
	}
	return r.bounded()
}

func (r *run) bounded() error {
	if n := r.comparison.waiting; n > r.cfg.Limit {
		return fmt.Errorf("more than %d rows and records wait for their match: does the relay run, and to these topics? (a shorter --for takes less)", r.cfg.Limit)
	}
	return nil
}

// finish reads the states of the rows without a record, and makes the report.
func (r *run) finish(ctx context.Context, until time.Time) (*Report, error) {
	if until.IsZero() {
		until = time.Now()
	}
	var stateful []*outbox.Row
	for _, p := range ordered(r.comparison.expected) {
		if p.row.Table.Stateful() {
			stateful = append(stateful, p.row)
		}
	}
	pending := map[*outbox.Row]bool{}
	for page := range slices.Chunk(stateful, 1000) {
		answers, err := r.cfg.Check(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("looking at rows without a record: %w", err)
		}
		for _, a := range answers {
			pending[a.Row] = a.State == outbox.CheckPending || a.State == outbox.CheckInvisible
		}
	}
	report := r.comparison.Finish(pending, r.since.Add(r.cfg.Settle))
	report.Stream, report.Since, report.Until = r.cfg.Stream, r.since.UTC(), until.UTC()
	return report, nil
}
