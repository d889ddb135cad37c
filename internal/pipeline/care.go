package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// How often the stream looks after itself.
const (
	retainedEvery  = 5 * time.Second
	retentionEvery = time.Minute
	recoveryEvery  = 15 * time.Second
)

// What a server that shuts down says on connections that are open, and to new
// ones. https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	adminShutdown    = "57P01"
	cannotConnectNow = "57P03"
)

// care does what has to be done now and then beside the flow: write WAL so that
// the slot of an idle database moves on, ask how much WAL the slot retains,
// watch the publication, recover rows that another relay left.
// Errors are logged and passed over: the next round tries again.
func (d *driver) care(ctx context.Context) error {
	heartbeat := time.NewTicker(d.cfg.HeartbeatInterval)
	retained := time.NewTicker(retainedEvery)
	recovery := time.NewTicker(recoveryEvery)
	defer heartbeat.Stop()
	defer retained.Stop()
	defer recovery.Stop()
	if d.cfg.Shadow { // changes no row
		recovery.Stop()
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-heartbeat.C:
			_, err = replication.Heartbeat(ctx, d.cfg.Pool)
		case <-retained.C:
			err = d.askRetained(ctx)
			if err == nil {
				err = d.watchPublication(ctx)
			}
		case <-recovery.C:
			err = d.recover(ctx)
		}
		if err != nil && ctx.Err() == nil {
			d.heed(err)
			d.cfg.Log.Warn().Err(err).Msg("looking after the stream")
		}
	}
}

// retention deletes rows past their retention, which may take long, so nothing
// else waits for it. To find them may take reading whole tables: that is done
// for no more than a twentieth of the time.
func (d *driver) retention(ctx context.Context) error {
	if d.cfg.Shadow || !slices.ContainsFunc(d.cfg.Tables, sweeper.Retains) {
		return nil
	}
	timer := time.NewTimer(retentionEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		finding, err := d.retain(ctx)
		if err != nil && ctx.Err() == nil {
			d.heed(err)
			d.cfg.Log.Warn().Err(err).Msg("deleting rows past their retention")
		}
		timer.Reset(max(retentionEvery, 20*finding))
	}
}

// heed closes the replication connection when an error of any other connection
// tells that the server ends sessions. A fast shutdown waits until the clients
// of walsenders have received and confirmed everything; a stream that holds
// would keep it waiting for ever.
// https://www.postgresql.org/docs/current/server-shutdown.html
func (d *driver) heed(err error) {
	var server *pgconn.PgError
	if errors.As(err, &server) && (server.Code == adminShutdown || server.Code == cannotConnectNow) {
		d.log.kill()
	}
}

func (d *driver) askRetained(ctx context.Context) error {
	r, err := replication.ReadRetained(ctx, d.cfg.Pool, d.cfg.Replication.Slot)
	if err != nil {
		return err
	}
	conn := d.log.streaming.Load()
	if conn != nil {
		conn.NoteInsert(r.Insert) // how far behind reading is decides how it reads
	}
	d.answers.Put(answer{0, func() {
		if conn != nil && conn == d.log.streaming.Load() {
			d.core.Inserted(r.Insert)
		}
		d.core.Retained(r.Bytes())
		d.retained(r)
	}})
	return nil
}

// watchPublication ends the connection when rows may have been passed over, or
// when the publication has more tables and lacked some of ours, so that the next
// one judges the slot and the publication anew.
func (d *driver) watchPublication(ctx context.Context) error {
	mark, err := replication.WatchPublication(ctx, d.cfg.Pool, d.cfg.Replication.Publication)
	if err != nil {
		return err
	}
	before := d.log.publication.Load()
	if before == nil {
		return nil
	}
	damage := replication.Damage(*before, mark)
	if damage == "" && mark != *before && d.lacking.Load() {
		d.cfg.Log.Info().Str("publication", d.cfg.Replication.Publication).Msg("the publication has more tables: the connection begins anew")
		d.log.publication.Store(nil)
		d.answers.Put(answer{0, func() { d.log.kill() }})
		return nil
	}
	if damage != "" {
		d.cfg.Metrics.PublicationChanged()
		d.stream.board.happened("publication", "the publication changed, so the stream is swept: "+damage)
		d.cfg.Log.Error().Str("publication", d.cfg.Replication.Publication).Str("what", damage).
			Msg("the publication changed: rows may have been passed over, so the stream is swept")
		d.log.publication.Store(nil)
		d.answers.Put(answer{0, func() { d.log.kill() }})
	}
	return nil
}
