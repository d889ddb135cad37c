// Package survey finds the state of a stream by asking its database. The status command uses it where no
// process answers, or the one that answers is a standby. It changes nothing. It cannot know what only a
// leader knows: rows in flight, and whether Kafka can be used.
package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Config describes the stream to examine.
type Config struct {
	Name, Slot string
	// Delivery is the configured delivery.
	Delivery string
	Tables   []*outbox.Table
	Pool     *pgxpool.Pool
	Budget   uint64 // wal_budget, in bytes
	// Forecast has the samples of earlier calls; nil: there are none.
	Forecast *status.Forecast
}

// countTimeout bounds a count.
const countTimeout = 10 * time.Second

// Look asks the database. Stream.Error says what could not be found out.
func Look(ctx context.Context, cfg Config) status.Stream {
	s := status.Stream{Name: cfg.Name, Delivery: cfg.Delivery, Source: status.FromDatabase, Mode: status.ModeUnknown, Tables: []status.Table{}}
	if err := look(ctx, cfg, &s); err != nil {
		s.Error, s.Unreachable = postgres.Text(err), s.Mode == status.ModeUnknown && postgres.Unreachable(err)
	}
	status.Judge(&s)
	return s
}

func look(ctx context.Context, cfg Config, s *status.Stream) error {
	retained, err := replication.ReadRetained(ctx, postgres.On(cfg.Pool), cfg.Slot)
	if err != nil {
		return err
	}
	read := time.Now()
	var last string
	if s.Leader, last, err = Leader(ctx, postgres.On(cfg.Pool), cfg.Name, cfg.Slot); err != nil {
		return err
	}
	var waiting []replication.Holder
	if err := postgres.On(cfg.Pool).Ask(ctx, replication.Standbys(cfg.Slot, "outbox-cdc/"+cfg.Name+"@", &waiting)); err != nil {
		return err
	}
	s.Standbys = Standbys(waiting)
	held, err := parks(ctx, cfg)
	if err != nil && !errors.Is(err, statestore.ErrNoSchema) {
		return err
	}
	if errors.Is(err, statestore.ErrNoSchema) {
		last = "schema outbox_cdc is missing: run outbox-cdc init"
	}
	s.Parks = status.Summarize(held)
	s.Mode, s.Reason = mode(s.Leader, held, retained.Active, last)
	if other := otherStream(s.Leader, cfg.Name); other != "" {
		s.Mode, s.Reason = status.ModeStopped, "slot "+cfg.Slot+" is led by another stream, as "+other
	}
	s.Tables = Tables(ctx, cfg)
	if err == nil && cfg.Delivery == "exactly_once" {
		tallies, err := statestore.New(statestore.Config{DB: cfg.Pool, Stream: cfg.Name}).TallyStates(ctx, status.MaxLeft)
		if err != nil {
			return err
		}
		for _, t := range tallies {
			s.Tallies = append(s.Tallies, status.Tally{Cluster: t.Cluster, Open: t.Open, Left: t.Left})
		}
	}
	return slotOf(ctx, cfg, s, retained, read)
}

// Standbys converts the sessions that wait for the lead.
func Standbys(waiting []replication.Holder) []status.Standby {
	var list []status.Standby
	for _, h := range waiting {
		list = append(list, status.Standby{Name: h.Name, Address: h.Address, Since: h.Since})
	}
	return list
}

// otherStream returns the name of another stream whose process leads with this slot; "" if there is none. The
// lock belongs to the slot, and a renamed stream may keep its slot.
func otherStream(leader *status.Leader, stream string) string {
	if leader == nil || leader.Intruder != "" || !strings.HasPrefix(leader.Name, "outbox-cdc/") || strings.HasPrefix(leader.Name, "outbox-cdc/"+stream+"@") ||
		len(leader.Name) == 63 { // the name may be cut
		return ""
	}
	return leader.Name
}

// mode returns the mode that the database shows.
func mode(leader *status.Leader, held []outbox.Park, active bool, last string) (mode, reason string) {
	park := status.StreamPark(held)
	switch {
	case leader == nil:
		return status.ModeStopped, last
	case leader.Intruder != "":
		return status.ModeStopped, leader.Intruder
	case park != nil && park.Cause == outbox.CausePaused:
		return status.ModePaused, park.Reason
	case park != nil:
		return status.ModeSweep, park.Reason
	case !active:
		return status.ModeStarting, "the leader does not stream from the slot yet"
	}
	return status.ModeStream, ""
}

// slotOf adds the slot's state to the status.
func slotOf(ctx context.Context, cfg Config, s *status.Stream, retained replication.Retained, at time.Time) error {
	holder, err := replication.HolderOf(ctx, postgres.On(cfg.Pool), retained, cfg.Budget)
	if err != nil {
		return err
	}
	unbounded := slices.ContainsFunc(cfg.Tables, func(t *outbox.Table) bool { return !t.Stateful() })
	s.Slot = SlotOf(cfg.Slot, retained, cfg.Budget, unbounded)
	s.Slot.HeldBy = holder.Text()
	cmp.Or(cfg.Forecast, &status.Forecast{}).Tell(at, s.Slot)
	return nil
}

// SlotOf returns the status of a slot from what the server says of it.
func SlotOf(name string, r replication.Retained, budget uint64, unbounded bool) *status.Slot {
	s := &status.Slot{
		At: time.Now().UTC(), Name: name, Exists: r.Exists(), Active: r.Active, WALStatus: r.Status, Lost: r.Lost,
		Retained: r.Bytes(), Budget: budget, Unbounded: unbounded, Lag: r.Lag(),
	}
	if r.Safe >= 0 {
		s.Safe = &r.Safe
	}
	return s
}

// parks reads the stream's parks, unless a superuser must not read the schema. Tables without state cannot be
// parked: any parks are from a time when they had a state.
func parks(ctx context.Context, cfg Config) ([]outbox.Park, error) {
	switch err := replication.TrustSchema(ctx, postgres.On(cfg.Pool)); {
	case errors.Is(err, replication.ErrNoSchema):
		return nil, fmt.Errorf("%w: %w", statestore.ErrNoSchema, err)
	case err != nil:
		return nil, err
	}
	store := statestore.New(statestore.Config{DB: cfg.Pool, Stream: cfg.Name})
	held, err := store.Load(ctx)
	if err != nil || slices.ContainsFunc(cfg.Tables, func(t *outbox.Table) bool { return !t.Stateful() }) {
		return nil, err
	}
	paused, err := store.Paused(ctx)
	return append(slices.DeleteFunc(held, func(p outbox.Park) bool { return p.Cause == outbox.CausePaused }), paused...), err
}

// Leader returns who holds the leadership of a stream (nil: nobody), and, in words, who led it last.
func Leader(ctx context.Context, q postgres.DB, stream, slot string) (*status.Leader, string, error) {
	trust := replication.TrustSchema(ctx, q)
	if trust != nil && !errors.Is(trust, replication.ErrNoSchema) {
		return nil, "", trust
	}
	now, err := replication.ReadHolder(ctx, q, slot)
	if err != nil {
		return nil, "", fmt.Errorf("look for the leader of stream %s: %w", stream, err)
	}
	l := &status.Leader{PID: now.PID, Name: now.Name, Address: now.Address, Since: now.Since, Intruder: now.Intruder()}
	var holder string
	var since time.Time
	if trust == nil {
		err = q.QueryRow(ctx, sql.LeaderRead, stream).Scan(&l.Epoch, &holder, &since)
	}
	unknown := postgres.HasCode(err, pgerrcode.UndefinedTable, pgerrcode.InvalidSchemaName, pgerrcode.InsufficientPrivilege)
	if err != nil && !unknown && !errors.Is(err, pgx.ErrNoRows) {
		return nil, "", fmt.Errorf("read who leads stream %s: %w", stream, err)
	}
	if l.Intruder != "" {
		l.Epoch = 0 // it does not belong to any epoch
	}
	if l.PID != "" {
		return l, "", nil
	}
	if holder == "" { // there is no row for the stream, or no schema yet
		return nil, "nobody has led it yet", nil
	}
	holder, _, _ = strings.Cut(holder, " #") // removes the part that tells processes apart
	return nil, fmt.Sprintf("%s led last, from %s on", holder, since.UTC().Format(time.RFC3339)), nil
}

// Tables counts each table's pending and failed rows.
func Tables(ctx context.Context, cfg Config) []status.Table {
	list := make([]status.Table, len(cfg.Tables))
	sw, err := sweeper.New(sweeper.Config{Pool: cfg.Pool, Tables: cfg.Tables, StatementTimeout: countTimeout})
	for i, t := range cfg.Tables {
		list[i].Name = t.String()
		if err != nil {
			list[i].Error = err.Error()
		}
		if !t.Stateful() || err != nil {
			continue
		}
		if err := count(ctx, sw, t, &list[i]); err != nil {
			db := postgres.On(cfg.Pool)
			list[i].Error = tablesql.WithNewNames(err, statestore.RenamedColumns(ctx, db, cfg.Name, t.String())).Error()
			if now := statestore.Renamed(ctx, db, cfg.Name, t.String()); now != "" {
				list[i].Error = statestore.Called(now)
			}
		}
	}
	return list
}

func count(ctx context.Context, sw *sweeper.Sweeper, t *outbox.Table, to *status.Table) error {
	p, err := sw.CountPending(ctx, t)
	if err != nil {
		return err
	}
	to.Pending, to.PendingCapped, to.Oldest, to.CountedAt = &p.Rows, p.Capped, p.Oldest.Seconds(), time.Now().UTC()
	f, err := sw.CountFailed(ctx, t)
	return failed(f, err, to)
}

// failed records the count of failed rows. A count that takes too long is not a fault of the table.
func failed(f tablesql.FailedCount, err error, to *status.Table) error {
	switch {
	case err == nil && f.Kept:
		to.Failed, to.FailedCapped, to.FailedAt = &f.Rows, f.Capped, time.Now().UTC()
	case postgres.HasCode(err, pgerrcode.QueryCanceled):
		to.FailedUnknown = true
		return nil
	}
	return err
}
