package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// leadership is the stream's lead as the database knows it: the leader's epoch, and the claim
// to its tables. Before it is taken, what an earlier leader may have left is judged.
type leadership struct {
	cfg   *Config
	store *store
}

// take makes this process the stream's leader with a new epoch and claims its tables, unless another stream has them.
func (l *leadership) take(ctx context.Context) (statestore.Leadership, error) {
	if err := l.unclaimed(ctx); err != nil {
		return statestore.Leadership{}, err
	}
	lead, err := l.store.lead(ctx, l.cfg.Replication.Name)
	if err != nil || l.cfg.Shadow {
		return lead, err
	}
	if err := l.refuseChange(ctx); err != nil {
		return lead, err
	}
	before, err := l.store.Claim(ctx, l.claim())
	for _, r := range before {
		l.cfg.Log.Info().Str("table", r.Table).Str("from", r.Stream).Str("slot", r.Slot).
			Msg("taking the table over from a stream that leads no longer; nothing uses its slot any more if it was renamed")
	}
	return lead, err
}

// unclaimed says whose the stream's tables are, before anything is taken.
func (l *leadership) unclaimed(ctx context.Context) error {
	if l.cfg.Shadow {
		return nil
	}
	rivals, err := l.store.Rivals(ctx, l.claim())
	if err != nil {
		return nil //nolint:nilerr // whatever it is, the claim says it
	}
	return statestore.Refusal(l.cfg.Name, l.claim(), rivals)
}

// How a claim says that rows are delivered.
const (
	atLeastOnce = "at_least_once"
	exactlyOnce = "exactly_once"
)

// claim is what this stream publishes.
func (l *leadership) claim() statestore.Claim {
	c := statestore.NewClaim(l.cfg.Replication.Slot, replication.LockKey(l.cfg.Replication.Slot), l.cfg.Tables)
	if c.Delivery = atLeastOnce; l.cfg.Once != nil {
		c.Delivery, c.IDs = exactlyOnce, map[string]string{}
		for cluster, sc := range l.cfg.Sinks {
			c.IDs[cluster] = sc.TransactionalID
		}
	}
	return c
}

// refuseChange fails if the last leader of these tables may have left published rows unmarked, and this one,
// configured in another way, could not tell which.
func (l *leadership) refuseChange(ctx context.Context) error {
	if l.cfg.Once == nil {
		there, err := l.store.HasTallies(ctx)
		if err == nil && there {
			err = l.refuseOrphans(ctx, []string{})
		}
		return err
	}
	if err := l.refuseOrphans(ctx, slices.Sorted(maps.Keys(l.cfg.Once.Journals))); err != nil {
		return err
	}
	unclean, err := l.store.Unclean(ctx, l.claim())
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
		if before.Stream == l.cfg.Name {
			err = errors.Join(err, l.refuseOtherIDs(ctx, before.IDs))
		}
	}
	return err
}

// refuseOtherIDs fails if a stream that did not stop cleanly has another transactional id now. Brokers end an open
// transaction only for the id that began it; left open, it could be committed after the journal was read.
func (l *leadership) refuseOtherIDs(ctx context.Context, before map[string]string) error {
	for cluster, sc := range l.cfg.Sinks {
		was := before[cluster]
		if was == "" || was == sc.TransactionalID {
			continue
		}
		tally, there, err := l.store.ReadTally(ctx, cluster)
		if err != nil {
			return err
		}
		if there && !tally.Closed {
			return &postgres.Error{
				Permanent: true, What: "deliver exactly once",
				Err: fmt.Errorf("the stream did not stop cleanly, and published to Kafka cluster %s with transactional id %s, not %s: what it published last may still be committed", cluster, was, sc.TransactionalID),
				Hint: "start once more with the transactional_id_prefix of before, and stop cleanly (SIGTERM); or, if rows that are not marked may be published once more, run outbox-cdc journal reset --stream " +
					l.cfg.Name,
			}
		}
	}
	return nil
}

// refuseOrphans fails if rows that were published exactly once on a cluster other than these may be unmarked. The
// stream would publish them again. What it marks would later be taken for what that journal names, and a requeued
// row would not be published.
func (l *leadership) refuseOrphans(ctx context.Context, clusters []string) error {
	orphans, err := l.store.Orphans(ctx, clusters, l.claim())
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

// noteClean notes that everything published is marked, or confirmed where the tables keep no state. A change of
// delivery requires that; the next leader inherits the fences.
func (l *leadership) noteClean(ctx context.Context, fences map[string]*outbox.Fences) {
	if l.cfg.Shadow {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	if err := l.store.Clean(ctx, fences); err != nil {
		l.cfg.Log.Info().Err(err).Msg("could not note the clean stop: the next start refuses another delivery, so start and stop the stream as it is before you change that")
	}
}
