package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Mend carries out a Verdict's actions beside the leader's connection: makes
// the publication or adds tables to it, over the pool or else as the streaming
// role, then makes the slot as the streaming role. It returns when nothing is
// left to make; inspect again then. The stream must be parked durably before
// (for tables to add: those tables).
//
// A *Blocked says which transactions the slot waits for; it is returned after
// each wait of cfg.MakePatience so that the caller can tell people and look
// around: call again. Ending the context ends the making; nothing is left.
func Mend(ctx context.Context, pool *pgxpool.Pool, cfg Config, v *Verdict) error {
	if v.Err != nil {
		return v.Err
	}
	if v.Publication != Keep || len(v.Add) > 0 {
		if err := mendPublication(ctx, pool, cfg); err != nil {
			return err
		}
	}
	if v.Slot == Keep {
		return nil
	}
	return asStreamer(ctx, cfg, func(pg *pgconn.PgConn) error {
		_, err := MakeSlot(ctx, pg, cfg, v.Slot, cfg.withDefaults().MakePatience)
		if errors.Is(err, errSlotExists) {
			return nil // made by somebody else meanwhile: to be judged again
		}
		return err
	})
}

// mendPublication tries the pool's role and then the streaming one: either may
// own the tables.
func mendPublication(ctx context.Context, pool *pgxpool.Pool, cfg Config) error {
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return &Error{What: "make publication " + cfg.Publication, Err: err}
	}
	err = MakePublication(ctx, pooled.Conn().PgConn(), cfg)
	pooled.Release()
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "42501" {
		return err
	}
	refused := asStreamer(ctx, cfg, func(pg *pgconn.PgConn) error { return MakePublication(ctx, pg, cfg) })
	if refused == nil {
		return nil
	}
	return err
}

// asStreamer lends a plain connection of the streaming role: one that counts
// against max_connections, not max_wal_senders.
func asStreamer(ctx context.Context, cfg Config, use func(*pgconn.PgConn) error) error {
	cfg = cfg.withDefaults()
	what := "connect to make slot " + cfg.Slot
	pc, err := parseDSN(cfg)
	if err != nil {
		return &Error{Permanent: true, What: what, Mend: "correct the stream's dsn", Err: err}
	}
	delete(pc.RuntimeParams, "replication")
	pc.DialFunc = cfg.Dial
	attempt, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	pg, err := pgconn.ConnectConfig(attempt, pc)
	if err != nil {
		return connectError(what, pc.User, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = pg.Close(ctx) // the socket is closed in any case
		// A cancel request may be under way; the next attempt must not meet the
		// half-made slot of this one.
		select {
		case <-pg.CleanupDone():
		case <-ctx.Done():
		}
	}()
	settings := fmt.Sprintf("SET search_path = pg_catalog; SET standard_conforming_strings = on; SET lock_timeout = 0; SET idle_session_timeout = %d",
		2*cfg.MakePatience.Milliseconds())
	if _, err := run(attempt, pg, settings); err != nil {
		return &Error{What: what, Err: err}
	}
	return use(pg)
}

var _ Querier = (*pgx.Conn)(nil)
