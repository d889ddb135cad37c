package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/statusupdater"
)

// Once has a stream deliver each row exactly once; docs/exactly-once.md has the rules.
type Once struct {
	// Journals are the topics that name what was published, by Kafka cluster.
	Journals map[string]string
	// MaxRows is the most rows of one transaction, Timeout after how long brokers end one that
	// nobody ends.
	MaxRows int
	Timeout time.Duration
}

const (
	// recoverWithin is how long the clusters' journals are waited for. Rows of those that
	// were not read by then are swept when they were, so the others go on.
	recoverWithin = 5 * time.Second
	// advanceEvery is how often the tallies' heads are moved on.
	advanceEvery = time.Second
	// closeWithin bounds what a clean stop does to the tallies.
	closeWithin = 5 * time.Second
	// tallyEvery is how often the database is asked for the tallies.
	tallyEvery = 2 * time.Second
)

// errNewTerm: each connection to the database has a Core and sinks of its own, since what was
// published before may be marked, or not, on the server that comes.
var errNewTerm = errors.New("leading from the beginning")

// once is exactly-once delivery during one leadership. The driver owns it.
type once struct {
	guard   *tablesql.Guard
	key     int64 // of guard
	tallies map[string]exactlyonce.Tally
	// stateless, if set: the tables keep no state.
	stateless *stateless
	// unrecovered are clusters whose journal was not read yet, ready is closed when there are none.
	unrecovered map[string]bool
	ready       chan struct{}
	// left are published rows to be told with the first connection.
	left      []*outbox.Row
	connected bool
	moved     atomic.Bool // units were marked
}

// openOnce reads what the database knows of what was published.
func (s *Stream) openOnce(ctx context.Context, conn *replication.Conn) (*once, error) {
	switch {
	case s.cfg.Shadow:
		return nil, nil //nolint:nilnil // it publishes nothing
	case s.cfg.Once == nil:
		return nil, nil //nolint:nilnil // rows may come twice
	}
	clusters := slices.Sorted(maps.Keys(s.cfg.Once.Journals))
	o := &once{guard: &tablesql.Guard{}, tallies: map[string]exactlyonce.Tally{}, unrecovered: map[string]bool{}, ready: make(chan struct{})}
	if s.stateless() {
		o.stateless = newStateless(clusters)
	}
	var err error
	if o.key, err = conn.Guard(ctx); err != nil {
		return nil, err
	}
	o.guard.Hold(o.key)
	for _, cluster := range clusters {
		if o.tallies[cluster], _, err = s.store.ReadTally(ctx, cluster); err != nil {
			return nil, err
		}
		o.unrecovered[cluster] = true
	}
	return o, nil
}

// refuseChange keeps a stream from rows that the last leader of its tables may have published and not
// marked, where this one, being configured in another way, could not find out which.
func (s *Stream) refuseChange(ctx context.Context) error {
	if s.cfg.Once == nil {
		there, err := s.store.HasTallies(ctx)
		if err == nil && there {
			err = s.refuseOrphans(ctx, []string{})
		}
		return err
	}
	if err := s.refuseOrphans(ctx, slices.Sorted(maps.Keys(s.cfg.Once.Journals))); err != nil {
		return err
	}
	unclean, err := s.store.Unclean(ctx, s.claim())
	if err != nil {
		return err
	}
	for _, before := range unclean {
		if before.Delivery == atLeastOnce {
			return &postgres.Error{
				Permanent: true, What: "deliver exactly once",
				Err:  fmt.Errorf("stream %s delivered rows of table %s at least once and did not stop cleanly, so some may be published and not marked", before.Stream, before.Table),
				Hint: "start stream " + before.Stream + " once more with delivery: at_least_once, and stop it cleanly (SIGTERM)",
			}
		}
		if before.Stream == s.cfg.Name {
			err = errors.Join(err, s.refuseOtherIDs(ctx, before.IDs))
		}
	}
	return err
}

// refuseOtherIDs: only the transactional id of before makes brokers end what was published with it. Another's transaction
// may be committed after the journal was read.
func (s *Stream) refuseOtherIDs(ctx context.Context, before map[string]string) error {
	for cluster, sc := range s.cfg.Sinks {
		was := before[cluster]
		if was == "" || was == sc.TransactionalID {
			continue
		}
		tally, there, err := s.store.ReadTally(ctx, cluster)
		if err != nil {
			return err
		}
		if there && !tally.Closed {
			return &postgres.Error{
				Permanent: true, What: "deliver exactly once",
				Err: fmt.Errorf("the stream did not stop cleanly, and published to Kafka cluster %s with transactional id %s, not %s: what it published last may still be committed", cluster, was, sc.TransactionalID),
				Hint: "start once more with the transactional_id_prefix of before, and stop cleanly (SIGTERM); or, if rows that are not marked may be published once more, run outbox-cdc journal reset --stream " +
					s.cfg.Name,
			}
		}
	}
	return nil
}

// refuseOrphans keeps a stream from rows that were published exactly once on another cluster
// than these and may not be marked: it would publish them again, and what it marks would later
// be taken for what the journal names, so that a requeue is not published.
func (s *Stream) refuseOrphans(ctx context.Context, clusters []string) error {
	orphans, err := s.store.Orphans(ctx, clusters, s.claim())
	if err != nil || len(orphans) == 0 {
		return err
	}
	o := orphans[0]
	return &postgres.Error{
		Permanent: true, What: "look for rows that were published and are not marked",
		Err:  fmt.Errorf("stream %s delivered rows of table %s to Kafka cluster %s exactly once and did not stop cleanly, so some may be published and not marked", o.Stream, o.Table, o.Cluster),
		Hint: "start stream " + o.Stream + " once more with exactly-once delivery to that cluster, and stop it cleanly (SIGTERM)",
	}
}

// unmarkable says why a table's published rows cannot be marked.
func unmarkable(table string, why error, hint string) error {
	return &postgres.Error{Permanent: true, What: "mark rows that were published", Err: fmt.Errorf("table %s: %w", table, why), Hint: hint}
}

// nextStart is what becomes of rows that a stop has left.
func (o *once) nextStart() string {
	switch {
	case o == nil:
		return "publishes those rows again"
	case o.stateless != nil:
		return "asks the journal which of those rows were published, and publishes the others"
	}
	return "asks the journal which of those rows were published, marks them and publishes the others"
}

// transactions are those of a cluster's sink; nil: none.
func (d *driver) transactions(cluster string) *sink.Transactions {
	if d.once == nil {
		return nil
	}
	return &sink.Transactions{
		Journal: d.cfg.Once.Journals[cluster], Tally: d.once.tallies[cluster],
		MaxRows: d.cfg.Once.MaxRows, Timeout: d.cfg.Once.Timeout,
		Recover: func(ctx context.Context, journal string, found *exactlyonce.Recovery) error {
			return d.recoverUnits(ctx, cluster, journal, found)
		},
	}
}

// recoverUnits marks what the journal names and nobody marked, and tells the Core of the rows
// that cannot be marked yet, before the sink says that the cluster can be used.
func (d *driver) recoverUnits(ctx context.Context, cluster, journal string, found *exactlyonce.Recovery) error {
	done, err := retry(ctx, d, "mark rows that were published", func(ctx context.Context) (recovery, error) {
		done, err := d.tryRecovering(ctx, cluster, journal, found)
		if unkept(err) || errors.Is(err, exactlyonce.ErrJournal) || errors.Is(err, exactlyonce.ErrMapping) || errors.Is(err, exactlyonce.ErrTakenOut) || errors.Is(err, statestore.ErrShared) || errors.Is(err, errNewTerm) {
			err = backoff.Permanent(err)
		}
		return done, err
	})
	if err != nil || found.More && len(done.named) == 0 {
		return err
	}
	return d.inLoop(ctx, func() { d.recovered(cluster, done, found.More) })
}

// recovery is what became of units of a journal.
type recovery struct {
	left  []*outbox.Row        // that cannot be marked yet
	named []exactlyonce.Placed // of tables that keep no state: nothing is marked
}

func (d *driver) tryRecovering(ctx context.Context, cluster, journal string, found *exactlyonce.Recovery) (done recovery, err error) {
	store := d.stream.store
	before, _, err := store.ReadTally(ctx, cluster)
	switch {
	case err != nil:
		return done, err
	case before.Head.Number < d.once.tallies[cluster].Head.Number:
		return done, errNewTerm // the head that the journal was read from is another server's
	}
	// Who has such a table now, under this name or another, would publish its rows again.
	if table := exactlyonce.Unknown(before.Missing(found.Units), before.Left, d.cfg.Tables); table != "" {
		stream := d.cfg.Name
		return done, unmarkable(table, exactlyonce.ErrTakenOut,
			"start stream "+stream+" once more with the table, under that name, and stop it cleanly (SIGTERM); then take it out. If the table is gone, outbox-cdc journal reset --stream "+stream)
	}
	tally, err := store.OpenTally(ctx, cluster, journal, d.stream.claim(), false)
	switch {
	case err != nil:
		return done, err
	case tally.Journal != journal:
		return done, fmt.Errorf("%w: topic %s is not the one that the database knows", exactlyonce.ErrJournal, d.cfg.Once.Journals[cluster])
	}
	missing := tally.Missing(found.Units)
	// A row that is still to be marked cannot be told from a later one with its id.
	if table := exactlyonce.Remapped(missing, tally.Left, d.cfg.Tables); table != "" {
		return done, unmarkable(table, exactlyonce.ErrMapping,
			"start once more with the topic, key, payload, created_at and published of before, and stop cleanly (SIGTERM); then change the mapping")
	}
	if d.once.stateless != nil {
		done.named, missing = missing, nil
	}
	for _, u := range missing {
		if err := d.updater.Recover(ctx, cluster, u); err != nil {
			return done, err
		}
	}
	if err := store.AdvanceTally(ctx, cluster); err != nil {
		return done, err
	}
	tally, err = store.OpenTally(ctx, cluster, journal, d.stream.claim(), !found.More)
	done.left = statusupdater.LeftRows(d.cfg.Tables, tally.Left)
	for _, r := range done.left {
		r.Cluster = cluster
	}
	return done, err
}

// recovered takes the end of a cluster's recovery; more: of a part of it.
func (d *driver) recovered(cluster string, done recovery, more bool) {
	o := d.once
	if o.stateless != nil {
		o.stateless.found(cluster, done.named)
	}
	if more {
		return
	}
	delete(o.unrecovered, cluster)
	if len(o.unrecovered) == 0 {
		close(o.ready)
	}
	if o.connected {
		d.core.Left(done.left)
		return
	}
	o.left = append(o.left, done.left...)
}

// tell adds to the first connection what was recovered.
func (o *once) tell(connected *checkpoint.Connected, settled settledOn) {
	if o == nil {
		return
	}
	o.stateless.tell(connected, settled)
	if o.connected {
		return
	}
	o.connected = true
	connected.Left, o.left = o.left, nil
	connected.Unrecovered = slices.Sorted(maps.Keys(o.unrecovered))
}

// readWAL reads it when the clusters are recovered, or their time is over. Rows of tables without state
// cannot be swept later, so those wait for as long as it takes.
func (d *driver) readWAL(ctx context.Context) error {
	if err := d.recoverFirst(ctx); err != nil && d.once.stateless != nil {
		d.wal.conn.Kill()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", errNewTerm, err)
	}
	return d.wal.run(ctx)
}

// recoverFirst fails with the connection. Where rows can be swept later, who uses it next finds out.
func (d *driver) recoverFirst(ctx context.Context) error {
	if d.once == nil {
		return nil
	}
	var over <-chan time.Time
	if d.once.stateless == nil {
		over = time.After(recoverWithin)
	}
	return whileBeating(ctx, d.wal.conn, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-d.wal.finishing:
		case <-d.once.ready:
		case <-over:
		}
		return nil
	})
}

// advanceTallies keeps the heads of the tallies near.
func (d *driver) advanceTallies(ctx context.Context) error {
	if d.once == nil {
		return nil
	}
	for wait.Sleep(ctx, advanceEvery) == nil {
		if d.once.stateless != nil {
			d.retried(ctx, d.notePositions(ctx), advanceEvery, "could not note up to where rows are published: a start asks the journal for more of them")
			continue
		}
		if !d.once.moved.Swap(false) {
			continue
		}
		for cluster := range d.cfg.Once.Journals {
			advance := func(ctx context.Context) (struct{}, error) {
				return struct{}{}, d.stream.store.AdvanceTally(ctx, cluster)
			}
			_, err := retry(ctx, d, "note what is marked", advance)
			if err != nil {
				return nil //nolint:nilerr // the end of ctx
			}
		}
	}
	return nil
}

// closeTallies says, at a clean stop, that all which was published is marked. Where it
// cannot be said, the next start finds it out.
func (d *driver) closeTallies(ctx context.Context) (all bool) {
	if d.once == nil {
		return true
	}
	all = true
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	for cluster := range d.cfg.Once.Journals {
		err := statestore.ErrUnsettled // what its journal names is not known
		if !d.once.unrecovered[cluster] {
			err = d.noteLast(ctx, cluster)
		}
		if err == nil {
			err = d.stream.store.CloseTally(ctx, cluster)
		}
		if err != nil {
			d.cfg.Log.Info().Err(err).Str("cluster", cluster).Msg("the next start asks the journal what was published")
			all = false
		}
	}
	return all
}

func (d *driver) tellTallies(ctx context.Context) error {
	if d.once == nil {
		return nil
	}
	for {
		states, err := d.stream.store.TallyStates(ctx, status.MaxLeft)
		for _, t := range states {
			waiting := d.stream.tracker.tally(t.Cluster, t.Open, uint64(t.Head), t.Left) // #nosec G115 -- counted from 0
			d.cfg.Metrics.Tally(t.Cluster, t.Open, waiting, t.Left)
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Debug().Err(err).Msg("the tallies could not be read")
		}
		if wait.Sleep(ctx, tallyEvery) != nil {
			return nil //nolint:nilerr // the end of ctx
		}
	}
}
