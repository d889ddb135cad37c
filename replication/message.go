package replication

import (
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Kind is what a Message is.
type Kind uint8

// The kinds of messages.
const (
	// Idle: the deadline passed, or Wake was called.
	Idle Kind = iota
	// Data: one frame of the output plugin.
	Data
	// Keepalive: the server has sent everything below WALEnd.
	Keepalive
	// Notice: a warning of the server inside the stream.
	Notice
)

// Message is one thing received while streaming.
type Message struct {
	Kind Kind
	// Data is the plugin's frame, valid until the next Receive.
	Data []byte
	// WALStart is the position of Data in the WAL; 0 for frames that belong to
	// the next one (relation descriptions).
	WALStart outbox.LSN
	// WALEnd of a Keepalive is how far the server has decoded and sent; of Data
	// it is WALStart.
	WALEnd outbox.LSN
	// Sent is the server's time, in microseconds since 1970, when it sent Data or a Keepalive.
	Sent int64
	// ReplyRequested: answer with SendStatus at once.
	ReplyRequested bool
	// Warning is the text of a Notice, Code its SQLSTATE, Hint what the server proposes.
	Warning, Code, Hint string
}

// xlogHeader is the length of what comes before the plugin's frame, bytes.
const xlogHeader = 1 + 8 + 8 + 8

// readCopyData reads XLogData and primary keepalives.
func (m *Message) readCopyData(body []byte) error {
	if len(body) == 0 {
		return fmt.Errorf("%w: an empty CopyData message", ErrProtocol)
	}
	switch body[0] {
	case pglogrepl.XLogDataByteID:
		if data, err := pglogrepl.ParseXLogData(body[1:]); err == nil {
			m.Kind, m.WALStart, m.WALEnd, m.Data = Data, outbox.LSN(data.WALStart), outbox.LSN(data.ServerWALEnd), data.WALData
			m.Sent = data.ServerTime.UnixMicro()
			return nil
		}
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		if alive, err := pglogrepl.ParsePrimaryKeepaliveMessage(body[1:]); err == nil {
			m.Kind, m.WALEnd, m.ReplyRequested = Keepalive, outbox.LSN(alive.ServerWALEnd), alive.ReplyRequested
			m.Sent = alive.ServerTime.UnixMicro()
			return nil
		}
	}
	return fmt.Errorf("%w: a CopyData message of type %q and %d bytes", ErrProtocol, body[0], len(body))
}

func (m *Message) readNotice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return fmt.Errorf("%w: a notice that cannot be read: %w", ErrProtocol, err)
	}
	m.Kind, m.Warning, m.Code, m.Hint = Notice, n.Message, n.Code, n.Hint
	if n.Detail != "" {
		m.Warning += ": " + n.Detail
	}
	return nil
}
