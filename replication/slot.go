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

// Blocked reports that an attempt to make a slot timed out while it waited for transactions to end. The
// attempt left nothing behind; try again.
type Blocked struct {
	Slot   string
	Waited time.Duration
	By     []Blocker // the oldest first; without those that ended meanwhile
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

// MakeSlot carries out a Verdict's action on the slot and returns the position where the slot starts. The
// function MakeSlot says more.
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

// MakeSlot makes the logical slot of a configuration. two_phase is off. failover is on where it is configured
// and the version has it. For Remake, MakeSlot first drops the old slot. It never drops an active slot: that
// is an ErrSlotActive.
//
// A new slot waits for every open transaction of the cluster that has written, including prepared ones and
// those of other databases. After the timeout the attempt ends with a *Blocked; try again. The timeout should
// be three times the longest usual transaction, since a new slot may wait three times. Ending the context
// closes the connection and leaves no slot either.
//
// MakeSlot uses an SQL function and not pglogrepl.CreateReplicationSlot, for two reasons. statement_timeout
// does not bound the command CREATE_REPLICATION_SLOT: only ending the connection, and the leadership with it,
// would end its wait. And the commands init and slots drop work over ordinary connections.
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
		by, _ := BlockersOf(ctx, pg) // without the blockers the timeout can still be reported
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

// createSlot returns the statement that makes the slot. Version 0 means unknown: the statement then follows
// the configuration alone.
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
		_, hints := in.state.Undecodable() // no hints: the server's error says what else it needs
		e.Permanent, e.Hint = true, oneHint(hints)
	default:
		if shuttingDown(err) {
			e.Err = as(ErrShutdown, err)
		}
	}
	return e
}

var errSlotExists = errors.New("the slot exists")

// DropSlot drops the slot if it exists. An active slot stays, and the error is ErrSlotActive.
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
