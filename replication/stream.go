package replication

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// takeoverWait is how long Start waits for the leader before to leave the
// slot: a server process gives up its locks a moment before its slot.
const takeoverWait = 2 * time.Second

// Start makes the connection stream from the slot, from where the slot stands.
// No position is ever carried over: after a failover positions are used again,
// and one from the future is accepted and silently skips rows.
//
// After ErrSlotActive, ErrSlotGone, ErrSlotUnusable and other refusals the
// connection takes commands again and still leads; after ErrClosed it does not.
func (c *Conn) Start(ctx context.Context) error {
	for end := time.Now().Add(takeoverWait); ; {
		err := c.startOnce(ctx)
		if err == nil || !errors.Is(err, ErrSlotActive) || time.Now().After(end) {
			return err
		}
		if err := wait.Sleep(ctx, 25*time.Millisecond); err != nil {
			return &postgres.Error{What: "start streaming from slot " + c.cfg.Slot, Err: err}
		}
	}
}

func (c *Conn) startOnce(ctx context.Context) error {
	what := "start streaming from slot " + c.cfg.Slot
	if c.commands() == nil {
		return &postgres.Error{What: what, Err: ErrClosed}
	}
	if c.stopped {
		return &postgres.Error{What: what, Err: ErrStopped}
	}
	cfg := c.cfg
	var err error
	if cfg.Publication, err = c.asStored(ctx); err != nil {
		return err
	}
	// From here on the socket is read by frames: pgconn reads in small steps and watches
	// a context per message. It goes on writing. It has nothing in its buffer now, as it
	// might have after pglogrepl.StartReplication: the first messages of the stream.
	if err := c.pg.SyncConn(ctx); err != nil {
		return c.lost(what, err)
	}
	c.frames = newFrames(c.pg.Conn(), c.cfg.ReadBuffer, c.cfg.MaxFrame)
	c.frames.buf, c.spare = c.spare, nil
	c.socket.letGo()
	deadline := time.Now().Add(c.cfg.ConnectTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	release := context.AfterFunc(ctx, c.Kill)
	defer release()
	if err := c.send(&pgproto3.Query{String: startCommand(cfg)}, deadline); err != nil {
		return c.lost(what, err)
	}
	if err := c.awaitCopyBoth(what, deadline); err != nil {
		return err
	}
	c.confirmed, c.waited = 0, 0
	return nil
}

// asStored has the server send text as the database stores it: the server would end the
// stream, for ever, at the first character that it cannot convert to UTF-8. It returns
// the publication's name in that encoding.
func (c *Conn) asStored(ctx context.Context) (publication string, err error) {
	if c.set == nil {
		return c.cfg.Publication, nil
	}
	const name = "SELECT encode(convert_to($1, getdatabaseencoding()), 'hex')"
	rows, err := c.query(ctx, "write the publication's name", name, c.cfg.Publication)
	if err != nil {
		return "", err
	}
	if len(rows) != 1 {
		return "", &postgres.Error{What: "write the publication's name", Err: fmt.Errorf("%w: %d rows", ErrProtocol, len(rows))}
	}
	stored, err := hex.DecodeString(rows[0][0])
	if err != nil {
		return "", &postgres.Error{What: "write the publication's name", Err: err}
	}
	_, err = c.query(ctx, "read text as it is stored", "SET client_encoding = 'SQL_ASCII'")
	return string(stored), err
}

// startCommand is START_REPLICATION. Protocol version 1: whole transactions at
// their commit, prepared ones at COMMIT PREPARED.
func startCommand(cfg Config) string {
	options := "proto_version '1', publication_names '" + strings.ReplaceAll(sql.Identifier(cfg.Publication), "'", "''") + "'"
	if cfg.Binary {
		options += ", binary 'true'"
	}
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL 0/0 (%s)", sql.Identifier(cfg.Slot), options)
}

func (c *Conn) awaitCopyBoth(what string, deadline time.Time) error {
	for {
		kind, body, err := c.frame(deadline)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return c.lost(what, as(ErrSilent, err))
		case err != nil:
			return c.lost(what, err)
		}
		switch kind {
		case 'W':
			return nil
		case 'E':
			return c.refused(body)
		case 'N', 'S', 'A':
		default:
			return c.lost(what, fmt.Errorf("%w: a message of type %q in answer to START_REPLICATION", ErrProtocol, kind))
		}
	}
}

// frame returns the next message, and os.ErrDeadlineExceeded when none is
// complete at the deadline.
func (c *Conn) frame(deadline time.Time) (byte, []byte, error) {
	for {
		kind, body, ok, err := c.frames.next()
		if ok || err != nil {
			return kind, body, err
		}
		if err := c.fill(deadline); err != nil {
			return 0, nil, err
		}
	}
}

func (c *Conn) fill(deadline time.Time) error {
	if !deadline.Equal(c.deadline) {
		if err := c.socket.SetReadDeadline(deadline); err != nil {
			return err
		}
		c.deadline = deadline
	}
	// After the deadline is set, so that a Wake in between is not lost.
	if c.woken.Load() && c.woken.Swap(false) {
		c.deadline = time.Time{}
		return os.ErrDeadlineExceeded
	}
	before := time.Now()
	if err := c.frames.fill(); err != nil {
		c.waited += time.Since(before)
		c.deadline = time.Time{} // a late Wake may have set another one
		return err
	}
	c.waited = 0
	return nil
}

// Wake makes the Receive that is waiting, or else the next one that would
// wait, return Idle at once. Any goroutine may call it while the connection
// streams.
func (c *Conn) Wake() {
	c.woken.Store(true)
	_ = c.socket.Conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed socket, which wakes as well
}

// Receive returns the next message, or one of kind Idle when the deadline
// passes first. A message that is only partly here stays for the next call.
//
// Every error closes the connection, and leadership with it: after an error in
// decoding the server would take commands again, but its caches still show the
// catalogue as of the point in the WAL (seen: a publication that was re-created
// "does not exist" for that session).
func (c *Conn) Receive(deadline time.Time) (Message, error) {
	if c.frames == nil {
		return Message{}, &postgres.Error{What: c.streaming(), Err: ErrClosed}
	}
	for {
		kind, body, err := c.frame(deadline)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return c.idle()
			}
			return Message{}, c.lost(c.streaming(), err)
		}
		var m Message
		if err := c.read(&m, kind, body); err != nil {
			return Message{}, err
		}
		if m.Kind == Data && m.WALStart > 0 {
			c.socket.pace.far = uint64(m.WALStart)+farBytes < c.insert.Load()
		}
		if m.Kind != Idle {
			return m, nil
		}
	}
}

// streaming is what errors say was being done.
func (c *Conn) streaming() string { return "stream from slot " + c.cfg.Slot }

// read reads one protocol message into an empty m, whose kind stays Idle where
// there is nothing to tell.
func (c *Conn) read(m *Message, kind byte, body []byte) (err error) {
	switch kind {
	case 'd':
		err = m.readCopyData(body)
	case 'N':
		err = m.readNotice(body)
	case 'S', 'A': // a parameter's value, a notification
	case 'E':
		return c.failed(body)
	case 'c', 'C', 'Z': // a walsender that has sent everything at a shutdown ends with CommandComplete
		err = as(ErrShutdown, errors.New("PostgreSQL is shutting down or restarting"))
	default:
		err = fmt.Errorf("%w: a message of type %q inside the stream", ErrProtocol, kind)
	}
	if err != nil {
		return c.lost(c.streaming(), err)
	}
	return nil
}

// WaitLonger has Receive take the server for gone only after this time of
// silence, if it is longer than SenderTimeout. Call it before Start.
func (c *Conn) WaitLonger(d time.Duration) { c.longest = d }

// idle tells a passed deadline from a server that is gone: status messages ask
// for an answer when nothing has come for a while.
func (c *Conn) idle() (Message, error) {
	if c.waited > max(c.longest, c.cfg.SenderTimeout) {
		return Message{}, c.lost(c.streaming(), as(ErrSilent, fmt.Errorf("nothing received in %v of waiting", c.waited.Round(time.Millisecond))))
	}
	return Message{Kind: Idle}, nil
}

// Buffered says whether something more is here already. When it is false, what
// was collected should be handed on before the next Receive waits.
func (c *Conn) Buffered() bool {
	return c.frames != nil && (c.frames.complete() || c.socket.r < c.socket.w)
}

// CatchingUp says that the WAL is being read far from its end, or as fast as it
// comes: what was read is best handed on in large pieces, more follows at once.
func (c *Conn) CatchingUp() bool { return c.socket.pace.catchingUp() }

// NoteInsert tells the WAL insert position as last known (Inspect does it by
// itself). Any goroutine may call it.
func (c *Conn) NoteInsert(at outbox.LSN) { c.insert.Store(uint64(at)) }

// Inserted is the WAL insert position as last known.
func (c *Conn) Inserted() outbox.LSN { return outbox.LSN(c.insert.Load()) }

// SendStatus confirms a position: the server may forget what is below it, and
// sees that we are alive. A lower one than before is sent as the highest so
// far. Call it every quarter of SenderTimeout at least, whatever is in
// trouble, and at once after a Keepalive with ReplyRequested.
func (c *Conn) SendStatus(confirm outbox.LSN) error {
	what := "confirm " + confirm.String() + " to slot " + c.cfg.Slot
	if c.frames == nil {
		return &postgres.Error{What: what, Err: ErrClosed}
	}
	c.confirmed = max(c.confirmed, confirm)
	// All three positions are given, or pglogrepl puts the first in the place of a 0.
	at := pglogrepl.LSN(c.confirmed)
	update := pglogrepl.StandbyStatusUpdate{
		WALWritePosition: at, WALFlushPosition: at, WALApplyPosition: at,
		ReplyRequested: c.waited > c.cfg.SenderTimeout/4,
	}
	err := c.socket.SetWriteDeadline(time.Now().Add(c.cfg.SenderTimeout))
	if err == nil {
		err = pglogrepl.SendStandbyStatusUpdate(context.Background(), c.pg, update)
	}
	if err != nil {
		return c.lost(what, err)
	}
	return nil
}

// Confirmed is the highest position sent since Start.
func (c *Conn) Confirmed() outbox.LSN { return c.confirmed }

func (c *Conn) send(message pgproto3.FrontendMessage, deadline time.Time) error {
	if err := c.socket.SetWriteDeadline(deadline); err != nil {
		return err
	}
	c.pg.Frontend().Send(message)
	return c.pg.Frontend().Flush()
}

// Stop ends streaming in good order and keeps leadership: every status sent
// before has arrived when it returns nil, and the connection takes commands
// again. What is received meanwhile is thrown away, unconfirmed. When the
// context ends first, the connection is closed.
//
// The connection cannot stream again: a walsender does not forget that its
// client was done, and ends a second logical stream at once.
// https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-COPY
func (c *Conn) Stop(ctx context.Context) error {
	what := "stop streaming from slot " + c.cfg.Slot
	if c.frames == nil {
		return &postgres.Error{What: what, Err: ErrClosed}
	}
	deadline := time.Now().Add(c.cfg.SenderTimeout)
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	release := context.AfterFunc(ctx, c.Kill)
	defer release()
	c.socket.pace, c.stopped = pace{}, true
	if err := c.send(&pgproto3.CopyDone{}, deadline); err != nil {
		return c.lost(what, err)
	}
	return c.awaitReady(what, deadline)
}

// awaitReady throws away what comes until the server waits for a command.
func (c *Conn) awaitReady(what string, deadline time.Time) error {
	for {
		kind, body, err := c.frame(deadline)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if time.Now().Before(deadline) { // woken
				continue
			}
			return c.lost(what, as(ErrSilent, err))
		case err != nil:
			return c.lost(what, err)
		case kind == 'E' && fatal(body):
			return c.failed(body)
		case kind == 'Z':
			return c.takeCommands(what)
		}
	}
}

// takeCommands gives the connection back to pgconn.
func (c *Conn) takeCommands(what string) error {
	if c.frames.r < c.frames.w {
		return c.lost(what, fmt.Errorf("%w: more messages after ReadyForQuery", ErrProtocol))
	}
	_ = c.socket.SetDeadline(time.Time{}) // fails only on a closed socket
	c.spare, c.frames = c.frames.buf, nil
	c.socket.pace, c.deadline = pace{}, time.Time{}
	return nil
}

// refused turns the answer to START_REPLICATION into an Error. After an ERROR
// the server waits for the next command, and so the connection takes commands
// again.
func (c *Conn) refused(body []byte) error {
	server, err := parseError(body)
	if err != nil || server.SeverityUnlocalized != "ERROR" || shuttingDown(server) {
		return c.failed(body)
	}
	e := startError(c.cfg.Slot, server)
	// An error here has closed the connection, which the caller will find; the
	// server's own error says more.
	_ = c.awaitReady(e.What, time.Now().Add(c.cfg.SenderTimeout))
	return e
}

// failed closes the connection on an error that the server reports.
func (c *Conn) failed(body []byte) error {
	server, err := parseError(body)
	if err != nil {
		return c.lost(c.streaming(), err)
	}
	c.drop()
	e := streamError(c.cfg.Slot, server)
	e.Err = as(ErrClosed, e.Err)
	return e
}

func parseError(body []byte) (*pgconn.PgError, error) {
	var response pgproto3.ErrorResponse
	if err := response.Decode(body); err != nil {
		return nil, fmt.Errorf("%w: an error that cannot be read: %w", ErrProtocol, err)
	}
	return pgconn.ErrorResponseToPgError(&response), nil
}

func fatal(body []byte) bool {
	server, err := parseError(body)
	return err != nil || server.SeverityUnlocalized != "ERROR"
}

// lost closes the connection and says why.
func (c *Conn) lost(what string, err error) *postgres.Error {
	c.drop()
	if own, ok := errors.AsType[*postgres.Error](err); ok {
		return own
	}
	if errors.Is(err, net.ErrClosed) {
		return &postgres.Error{What: what, Err: ErrClosed}
	}
	return &postgres.Error{What: what, Err: as(ErrClosed, err)}
}

func (c *Conn) drop() {
	c.Kill()
	c.pg, c.frames = nil, nil
}
