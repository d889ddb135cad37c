package replication

import (
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Kind is the kind of a Message.
type Kind uint8

// The kinds of Message.
const (
	// Idle: the deadline passed, or Wake was called.
	Idle Kind = iota
	// Data: the message holds one frame of the output plugin.
	Data
	// Keepalive: the server has sent everything before WALEnd.
	Keepalive
	// Notice: the server sent a warning within the stream.
	Notice
)

// Message is what one Receive returns.
type Message struct {
	Kind Kind
	// Data is the plugin's frame, valid until the next Receive.
	Data []byte
	// WALStart is the position of Data in the WAL. It is 0 for a relation description, which belongs to the
	// frame after it.
	WALStart outbox.LSN
	// WALEnd of a Keepalive is the position up to which the server has decoded and sent. For Data it equals
	// WALStart.
	WALEnd outbox.LSN
	// Sent is the server's clock when it sent Data or a Keepalive, in microseconds since 1970.
	Sent int64
	// ReplyRequested asks for a SendStatus at once.
	ReplyRequested bool
	// Warning, Code and Hint belong to a Notice: its text, its SQLSTATE and the server's proposal.
	Warning, Code, Hint string
}

// xlogHeader is the length in bytes of the XLogData header before the plugin's frame.
const xlogHeader = 1 + 8 + 8 + 8

// readCopyData reads a CopyData body: an XLogData message or a primary keepalive.
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
