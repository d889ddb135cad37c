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

const (
	// recoverWithin is how long the start waits for the clusters' journals to be read. After that the WAL is
	// read. Rows of a cluster whose journal is read later are swept.
	recoverWithin = 5 * time.Second
	// advanceEvery is how often the tallies' heads are advanced.
	advanceEvery = time.Second
	// closeWithin bounds the work on the tallies at a clean stop.
	closeWithin = 5 * time.Second
	// tallyEvery is how often the tallies are read for metrics and status.
	tallyEvery = 2 * time.Second
)

// errNewTerm ends the term with its connection to the database. With exactly-once delivery, each connection
// needs a new Core and new sinks: rows published before may be marked, or not, on the server that comes next.
var errNewTerm = errors.New("leading from the beginning")

// once is exactly-once delivery during one leadership; nil: at-least-once delivery. Its mutable fields are
// used in the driver's loop only.
type once struct {
	*questions
	cfg     *Config
	core    *checkpoint.Core // used in the driver's loop only
	store   *store
	lead    *leadership
	updater *statusupdater.Updater

	guard   *tablesql.Guard
	key     int64 // the key of guard
	tallies map[string]exactlyonce.Tally
	// stateless is set if the tables keep no state.
	stateless *stateless
	// unrecovered are the clusters whose units are not recovered yet. ready is closed when there is none.
	unrecovered map[string]bool
	ready       chan struct{}
	// left are published rows to tell the Core of with the first connection.
	left      []*outbox.Row
	connected bool
	moved     atomic.Bool // units were marked since the heads were advanced last
}

// openOnce reads from the database what it knows of published rows.
func (d *driver) openOnce(ctx context.Context, conn *replication.Conn) (*once, error) {
	switch {
	case d.cfg.Shadow:
		return nil, nil //nolint:nilnil // shadow mode publishes nothing
	case d.cfg.Once == nil:
		return nil, nil //nolint:nilnil // at-least-once delivery
	}
	clusters := slices.Sorted(maps.Keys(d.cfg.Once.Journals))
	o := &once{
		questions: d.questions, cfg: &d.cfg, core: d.core, store: d.store, lead: d.lead,
		guard: &tablesql.Guard{}, tallies: map[string]exactlyonce.Tally{}, unrecovered: map[string]bool{}, ready: make(chan struct{}),
	}
	if d.cfg.stateless() {
		o.stateless = newStateless(clusters)
	}
	var err error
	if o.key, err = conn.Guard(ctx); err != nil {
		return nil, err
	}
	o.guard.Hold(o.key)
	for _, cluster := range clusters {
		if o.tallies[cluster], _, err = d.store.ReadTally(ctx, cluster); err != nil {
			return nil, err
		}
		o.unrecovered[cluster] = true
	}
	return o, nil
}

// unmarkable returns an error that says why a table's published rows cannot be marked.
func unmarkable(table string, why error, hint string) error {
	return &postgres.Error{Permanent: true, What: "mark rows that were published", Err: fmt.Errorf("table %s: %w", table, why), Hint: hint}
}

// nextStart returns what the next start does with rows that a stop left behind.
func (o *once) nextStart() string {
	switch {
	case o == nil:
		return "publishes those rows again"
	case o.stateless != nil:
		return "asks the journal which of those rows were published, and publishes the others"
	}
	return "asks the journal which of those rows were published, marks them and publishes the others"
}

// transactions returns the transactions of a cluster's sink; nil: none.
func (o *once) transactions(cluster string) *sink.Transactions {
	if o == nil {
		return nil
	}
	return &sink.Transactions{
		Journal: o.cfg.Once.Journals[cluster], Tally: o.tallies[cluster],
		MaxRows: o.cfg.Once.MaxRows, Timeout: o.cfg.Once.Timeout,
		Recover: func(ctx context.Context, journal string, found *exactlyonce.Recovery) error {
			return o.recoverUnits(ctx, cluster, journal, found)
		},
	}
}

// recoverUnits marks the rows that the journal names and that are not marked yet, and tells the Core of the
// rows that cannot be marked yet. This happens before the sink reports the cluster as usable.
func (o *once) recoverUnits(ctx context.Context, cluster, journal string, found *exactlyonce.Recovery) error {
	done, err := retry(ctx, o.questions, "mark rows that were published", func(ctx context.Context) (recovery, error) {
		done, err := o.tryRecovering(ctx, cluster, journal, found)
		if unkept(err) || errors.Is(err, exactlyonce.ErrJournal) || errors.Is(err, exactlyonce.ErrMapping) || errors.Is(err, exactlyonce.ErrTakenOut) || errors.Is(err, statestore.ErrShared) || errors.Is(err, errNewTerm) {
			err = backoff.Permanent(err)
		}
		return done, err
	})
	if err != nil || found.More && len(done.named) == 0 {
		return err
	}
	return o.inLoop(ctx, func() { o.recovered(cluster, done, found.More) })
}

// recovery is the result of recovering units of a journal.
type recovery struct {
	left  []*outbox.Row        // cannot be marked yet
	named []exactlyonce.Placed // units of tables without state, for which nothing is marked
}

// tryRecovering reads the tally first, since an earlier try may have marked a part.
func (o *once) tryRecovering(ctx context.Context, cluster, journal string, found *exactlyonce.Recovery) (done recovery, err error) {
	store := o.store
	before, _, err := store.ReadTally(ctx, cluster)
	switch {
	case err != nil:
		return done, err
	case before.Head.Number < o.tallies[cluster].Head.Number:
		return done, errNewTerm // the journal was read from a head that belongs to another server
	}
	// If the stream has that table now, under this name or another, it would publish the table's rows again.
	if table := exactlyonce.Unknown(before.Missing(found.Units), before.Left, o.cfg.Tables); table != "" {
		stream := o.cfg.Name
		return done, unmarkable(table, exactlyonce.ErrTakenOut,
			"start stream "+stream+" once more with the table, under that name, and stop it cleanly (SIGTERM); then take it out. If the table is gone, outbox-cdc journal reset --stream "+stream)
	}
	tally, err := store.OpenTally(ctx, cluster, journal, o.lead.claim(), false)
	switch {
	case err != nil:
		return done, err
	case tally.Journal != journal:
		return done, fmt.Errorf("%w: topic %s is not the one that the database knows", exactlyonce.ErrJournal, o.cfg.Once.Journals[cluster])
	}
	missing := tally.Missing(found.Units)
	// A row that is still to be marked cannot be told from a later row with its id.
	if table := exactlyonce.Remapped(missing, tally.Left, o.cfg.Tables); table != "" {
		return done, unmarkable(table, exactlyonce.ErrMapping,
			"start once more with the topic, key, payload, created_at and published of before, and stop cleanly (SIGTERM); then change the mapping")
	}
	if o.stateless != nil {
		done.named, missing = missing, nil
	}
	for _, u := range missing {
		if err := o.updater.Recover(ctx, cluster, u); err != nil {
			return done, err
		}
	}
	if err := store.AdvanceTally(ctx, cluster); err != nil {
		return done, err
	}
	tally, err = store.OpenTally(ctx, cluster, journal, o.lead.claim(), !found.More)
	done.left = statusupdater.LeftRows(o.cfg.Tables, tally.Left)
	for _, r := range done.left {
		r.Cluster = cluster
	}
	return done, err
}

// recovered ends the recovery of a cluster; more: only of a part of it.
func (o *once) recovered(cluster string, done recovery, more bool) {
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
		o.core.Unmarked(done.left)
		return
	}
	o.left = append(o.left, done.left...)
}

// tell adds the recovered rows to the first connection.
func (o *once) tell(connected *checkpoint.Connected, settled settledOn) {
	if o == nil {
		return
	}
	o.stateless.tell(connected, settled)
	if o.connected {
		return
	}
	o.connected = true
	connected.Unmarked, o.left = o.left, nil
	connected.Unrecovered = slices.Sorted(maps.Keys(o.unrecovered))
}

// recoverFirst waits until the clusters are recovered, or until recoverWithin has passed. If conn fails, it
// returns the error. conn fails again at its next use, so a caller that can do without the clusters may
// ignore the error.
func (o *once) recoverFirst(ctx context.Context, conn *replication.Conn, finishing <-chan struct{}) error {
	if o == nil {
		return nil
	}
	var over <-chan time.Time
	if o.stateless == nil {
		over = time.After(recoverWithin)
	}
	return whileBeating(ctx, conn, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-finishing:
		case <-o.ready:
		case <-over:
		}
		return nil
	})
}

// advanceTallies advances the heads of the tallies periodically.
func (o *once) advanceTallies(ctx context.Context) error {
	if o == nil {
		return nil
	}
	for wait.Sleep(ctx, advanceEvery) == nil {
		if o.stateless != nil {
			o.retried(ctx, o.notePositions(ctx), advanceEvery, "could not note up to where rows are published: a start asks the journal for more of them")
			continue
		}
		if !o.moved.Swap(false) {
			continue
		}
		for cluster := range o.cfg.Once.Journals {
			advance := func(ctx context.Context) (struct{}, error) {
				return struct{}{}, o.store.AdvanceTally(ctx, cluster)
			}
			_, err := retry(ctx, o.questions, "note what is marked", advance)
			if err != nil {
				return nil //nolint:nilerr // the end of ctx
			}
		}
	}
	return nil
}

// closeTallies notes, at a clean stop, that all published rows are marked. Where that cannot be noted, the
// next start reads the journal.
func (o *once) closeTallies(ctx context.Context) (all bool) {
	if o == nil {
		return true
	}
	all = true
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	for cluster := range o.cfg.Once.Journals {
		err := statestore.ErrUnsettled // its journal is not read yet
		if !o.unrecovered[cluster] {
			err = o.noteLast(ctx, cluster)
		}
		if err == nil {
			err = o.store.CloseTally(ctx, cluster)
		}
		if err != nil {
			o.log.Info().Err(err).Str("cluster", cluster).Msg("the next start asks the journal what was published")
			all = false
		}
	}
	return all
}

// tellTallies tells metrics and status the tallies in the database.
func (o *once) tellTallies(ctx context.Context) error {
	if o == nil {
		return nil
	}
	for {
		states, err := o.store.TallyStates(ctx, status.MaxLeft)
		for _, t := range states {
			waiting := o.tracker.tally(t.Cluster, t.Open, uint64(t.Head), t.Left) // #nosec G115 -- counted from 0
			o.metrics.Tally(t.Cluster, t.Open, waiting, t.Left)
		}
		if err != nil && ctx.Err() == nil {
			o.log.Debug().Err(err).Msg("the tallies could not be read")
		}
		if wait.Sleep(ctx, tallyEvery) != nil {
			return nil //nolint:nilerr // the end of ctx
		}
	}
}
