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

// takeoverWait is how long Start waits for the previous leader's walsender to release the slot. A server
// process releases its locks a moment before its slot.
const takeoverWait = 2 * time.Second

// Start makes the connection stream from the slot, beginning where the slot stands. It never passes a
// position of its own. After a failover, positions are used a second time; the server accepts a position
// beyond its WAL and silently skips rows.
//
// After ErrSlotActive, ErrSlotGone, ErrSlotUnusable and other refusals, the connection takes commands again
// and still leads. After ErrClosed it does not.
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
	// From here on, frames reads the socket: pgconn reads in small steps and watches a context per message.
	// pgconn still writes. Its read buffer is empty at this point. After pglogrepl.StartReplication it might
	// hold the first messages of the stream.
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

// asStored makes the server send text in the database's encoding. Otherwise the first character without a
// UTF-8 equivalent would end the stream, again on each attempt. asStored returns the publication's name in
// that encoding.
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

// startCommand returns the START_REPLICATION command. Protocol version 1 sends whole transactions at their
// commit, and prepared ones at COMMIT PREPARED.
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

// frame returns the next message. If none is complete by the deadline, the error is os.ErrDeadlineExceeded.
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
	// This check comes after the deadline is set, so that a Wake in between is not lost.
	if c.woken.Load() && c.woken.Swap(false) {
		c.deadline = time.Time{}
		return os.ErrDeadlineExceeded
	}
	before := time.Now()
	if err := c.frames.fill(); err != nil {
		c.waited += time.Since(before)
		c.deadline = time.Time{} // a concurrent Wake may have set another deadline
		return err
	}
	c.waited = 0
	return nil
}

// Wake makes Receive return Idle at once: the call that is waiting, or otherwise the next call that would
// wait. Any goroutine may call Wake while the connection streams.
func (c *Conn) Wake() {
	c.woken.Store(true)
	_ = c.socket.Conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed socket, whose reader returns anyway
}

// Receive returns the next message, or one of kind Idle when the deadline passes first. An incomplete message
// is kept for the next call.
//
// Every error closes the connection and ends the leadership. After a decoding error the server would take
// commands again, but that session's caches still show the catalogue as of that point in the WAL: a
// publication that was re-created "does not exist" for it.
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

// streaming is the activity that error messages name.
func (c *Conn) streaming() string { return "stream from slot " + c.cfg.Slot }

// read reads one protocol message into an empty m. The kind stays Idle where the message has nothing for the
// caller.
func (c *Conn) read(m *Message, kind byte, body []byte) (err error) {
	switch kind {
	case 'd':
		err = m.readCopyData(body)
	case 'N':
		err = m.readNotice(body)
	case 'S', 'A': // a parameter's value or a notification
	case 'E':
		return c.failed(body)
	case 'c', 'C', 'Z': // at a shutdown, a walsender that has sent everything ends with CommandComplete
		err = as(ErrShutdown, errors.New("PostgreSQL is shutting down or restarting"))
	default:
		err = fmt.Errorf("%w: a message of type %q inside the stream", ErrProtocol, kind)
	}
	if err != nil {
		return c.lost(c.streaming(), err)
	}
	return nil
}

// WaitLonger sets how long the server may be silent before Receive returns ErrSilent. It counts only where it
// is longer than SenderTimeout. Call it before Start.
func (c *Conn) WaitLonger(d time.Duration) { c.longest = d }

// idle handles a passed deadline. It returns an error if the server has been silent for too long. After a
// quarter of SenderTimeout, status messages ask the server for an answer.
func (c *Conn) idle() (Message, error) {
	if c.waited > max(c.longest, c.cfg.SenderTimeout) {
		return Message{}, c.lost(c.streaming(), as(ErrSilent, fmt.Errorf("nothing received in %v of waiting", c.waited.Round(time.Millisecond))))
	}
	return Message{Kind: Idle}, nil
}

// Buffered reports whether more bytes have been received already. When it is false, pass on what was
// collected: the next Receive may wait.
func (c *Conn) Buffered() bool {
	return c.frames != nil && (c.frames.complete() || c.socket.r < c.socket.w)
}

// CatchingUp reports whether the WAL is read far from its end, or at a high rate. The caller should then pass
// rows on in large batches, since more follow at once.
func (c *Conn) CatchingUp() bool { return c.socket.pace.catchingUp() }

// NoteInsert records the last known WAL insert position. Inspect calls it too. Any goroutine may call it.
func (c *Conn) NoteInsert(at outbox.LSN) { c.insert.Store(uint64(at)) }

// Inserted is the last known WAL insert position.
func (c *Conn) Inserted() outbox.LSN { return outbox.LSN(c.insert.Load()) }

// SendStatus confirms a position and shows that this process is alive. The server may discard the WAL before
// that position. If confirm is lower than an earlier one, the highest so far is sent. Call SendStatus at
// least every quarter of SenderTimeout, even while Kafka or the database fails, and at once after a Keepalive
// with ReplyRequested.
func (c *Conn) SendStatus(confirm outbox.LSN) error {
	what := "confirm " + confirm.String() + " to slot " + c.cfg.Slot
	if c.frames == nil {
		return &postgres.Error{What: what, Err: ErrClosed}
	}
	c.confirmed = max(c.confirmed, confirm)
	// All three positions are set: pglogrepl replaces a 0 with the first.
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

// Stop ends streaming in order and keeps the leadership. When it returns nil, the server has received every
// status, and the connection takes commands again. Messages that arrive meanwhile are discarded, unconfirmed.
// If the context ends first, the connection is closed.
//
// The connection cannot stream a second time: a walsender remembers that its client was done, and ends the
// next logical stream at once. https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-COPY
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

// awaitReady discards messages until the server waits for a command.
func (c *Conn) awaitReady(what string, deadline time.Time) error {
	for {
		kind, body, err := c.frame(deadline)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if time.Now().Before(deadline) { // woken by Wake
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

// takeCommands returns the connection to pgconn.
func (c *Conn) takeCommands(what string) error {
	if c.frames.r < c.frames.w {
		return c.lost(what, fmt.Errorf("%w: more messages after ReadyForQuery", ErrProtocol))
	}
	_ = c.socket.SetDeadline(time.Time{}) // fails only on a closed socket
	c.spare, c.frames = c.frames.buf, nil
	c.socket.pace, c.deadline = pace{}, time.Time{}
	return nil
}

// refused makes an Error of the answer to START_REPLICATION. After an ERROR the server waits for the next
// command, so the connection takes commands again.
func (c *Conn) refused(body []byte) error {
	server, err := parseError(body)
	if err != nil || server.SeverityUnlocalized != "ERROR" || shuttingDown(server) {
		return c.failed(body)
	}
	e := startError(c.cfg.Slot, server)
	// If this fails, the connection is closed, and the caller's next command finds that out. The server's own
	// error says more.
	_ = c.awaitReady(e.What, time.Now().Add(c.cfg.SenderTimeout))
	return e
}

// failed closes the connection and returns the error that the server reported.
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

// lost closes the connection and returns an error that says why.
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
