package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// Blocked says that the making of a slot waited in vain for transactions to
// end. Nothing is left of the attempt; try again.
type Blocked struct {
	Slot   string
	Waited time.Duration
	By     []Blocker // the oldest first; those that ended meanwhile are missing
}

func (b *Blocked) Error() string {
	text := fmt.Sprintf("make slot %s: waited %v for open transactions to end", b.Slot, b.Waited)
	for i, blocker := range b.By {
		if i == 3 {
			return text + fmt.Sprintf("; and %d more", len(b.By)-i)
		}
		text += "; " + blocker.String()
	}
	return text
}

// MakeSlot carries out a Verdict's action on the slot and returns the position
// it starts at. See the function MakeSlot.
func (c *Conn) MakeSlot(ctx context.Context, action Action, timeout time.Duration) (outbox.LSN, error) {
	if c.commands() == nil {
		return 0, &postgres.Error{What: "make slot " + c.cfg.Slot, Err: ErrClosed}
	}
	at, err := MakeSlot(ctx, c.pg, c.cfg, action, timeout)
	if c.pg.IsClosed() {
		c.drop()
		return 0, &postgres.Error{What: "make slot " + c.cfg.Slot, Err: as(ErrClosed, err)}
	}
	return at, err
}

// MakeSlot makes the logical slot of a configuration (two_phase off; failover
// on where asked for and known), after dropping it for Remake. An active slot
// is never dropped: that is an Error of ErrSlotActive.
//
// A new slot waits for every transaction of the cluster that has written and
// is still open, prepared ones and other databases' included. After timeout
// the attempt is given up with a *Blocked: repeat it. Timeout should exceed
// the longest usual transaction threefold, since a new slot may wait three
// times. Ending the context closes the connection; no slot is left then either.
//
// This is SQL and not pglogrepl.CreateReplicationSlot: statement_timeout does not
// bound the command CREATE_REPLICATION_SLOT, so that only the end of the
// connection, and of leadership, would end its wait; and init and slots drop make
// and drop slots over ordinary connections.
func MakeSlot(ctx context.Context, pg *pgconn.PgConn, cfg Config, action Action, timeout time.Duration) (outbox.LSN, error) {
	if action == Keep {
		return 0, nil
	}
	if err := checkSlotName(cfg.Slot); err != nil {
		return 0, err
	}
	if action == Remake {
		if err := DropSlot(ctx, pg, cfg.Slot); err != nil {
			return 0, err
		}
	}
	version, err := serverVersion(ctx, pg)
	if err != nil {
		return 0, makeSlotError(ctx, pg, cfg.Slot, err)
	}
	statement := fmt.Sprintf("SET LOCAL statement_timeout = %d; %s", max(1, timeout.Milliseconds()), createSlot(cfg, version))
	rows, err := run(ctx, pg, statement)
	if postgres.HasCode(err, pgerrcode.QueryCanceled) {
		by, _ := BlockersOf(ctx, pg) // without them it can be told as well
		return 0, &Blocked{Slot: cfg.Slot, Waited: timeout, By: by}
	}
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("%w: %d rows", ErrProtocol, len(rows))
	}
	if err != nil {
		return 0, makeSlotError(ctx, pg, cfg.Slot, err)
	}
	return outbox.ParseLSN(rows[0][0])
}

// createSlot is the statement that makes the slot. Version 0: unknown, so that
// it is as the configuration asks for it.
func createSlot(cfg Config, version int) string {
	failover := ""
	if cfg.Failover && (version == 0 || version >= 170000) {
		failover = ", true"
	}
	return fmt.Sprintf("SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot('%s', 'pgoutput', false, false%s)", cfg.Slot, failover)
}

func serverVersion(ctx context.Context, pg *pgconn.PgConn) (int, error) {
	in := inspection{ctx: ctx, pg: pg}
	rows := in.rows(1, "SELECT current_setting('server_version_num')")
	switch {
	case in.err != nil:
		return 0, in.err
	case len(rows) == 0:
		return 0, fmt.Errorf("%w: no version of the server", ErrProtocol)
	}
	return in.number(rows[0][0]), in.err
}

func makeSlotError(ctx context.Context, pg *pgconn.PgConn, slot string, err error) *postgres.Error {
	e := &postgres.Error{What: "make slot " + slot, Err: err}
	in := inspection{ctx: ctx, pg: pg}
	switch postgres.Code(err) {
	case pgerrcode.ConfigurationLimitExceeded:
		e.Permanent, e.Hint = true, "raise max_replication_slots, or drop a slot that nobody needs (outbox-cdc slots)"
	case pgerrcode.InsufficientPrivilege:
		if e.Permanent, e.Hint = true, pluginRefused(err); e.Hint != "" {
			break
		}
		in.platform()
		e.Hint = in.state.Platform.Replicates("…") + " or run outbox-cdc init as a role that may replicate"
	case pgerrcode.DuplicateObject:
		e.Err = as(errSlotExists, err)
	case pgerrcode.ObjectNotInPrerequisiteState:
		in.server()
		in.platform()
		_, hints := in.state.Undecodable() // none: the server says what else it needs
		e.Permanent, e.Hint = true, oneHint(hints)
	default:
		if shuttingDown(err) {
			e.Err = as(ErrShutdown, err)
		}
	}
	return e
}

var errSlotExists = errors.New("the slot exists")

// DropSlot drops the slot if it exists. An active one stays: an Error of
// ErrSlotActive.
func DropSlot(ctx context.Context, pg *pgconn.PgConn, slot string) error {
	_, err := bindAndRun(ctx, pg,
		`SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots WHERE slot_name = $1`, slot)
	switch {
	case err == nil, postgres.HasCode(err, pgerrcode.UndefinedObject):
		return nil
	case postgres.HasCode(err, pgerrcode.ObjectInUse):
		err = as(ErrSlotActive, err)
	}
	return &postgres.Error{What: "drop slot " + slot, Err: err}
}
