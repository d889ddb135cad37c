package replication

import (
	"encoding/binary"
	"fmt"

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
	// WALStart is the position of Data in the log; 0 for frames that belong to
	// the next one (relation descriptions).
	WALStart outbox.LSN
	// WALEnd of a Keepalive is how far the server has decoded and sent; of Data
	// it is WALStart.
	WALEnd outbox.LSN
	// ReplyRequested: answer with SendStatus at once.
	ReplyRequested bool
	// Warning is the text of a Notice, Code its SQLSTATE.
	Warning, Code string
}

// Lengths of CopyData bodies, bytes.
const (
	xlogHeader   = 1 + 8 + 8 + 8
	keepaliveLen = 1 + 8 + 8 + 1
	statusLen    = 1 + 8 + 8 + 8 + 8 + 1
)

// parseCopyData reads XLogData ('w') and primary keepalives ('k').
// https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-XLOGDATA
func parseCopyData(body []byte) (Message, error) {
	switch {
	case len(body) >= xlogHeader && body[0] == 'w':
		return Message{Kind: Data, WALStart: position(body[1:]), WALEnd: position(body[9:]), Data: body[xlogHeader:]}, nil
	case len(body) == keepaliveLen && body[0] == 'k':
		return Message{Kind: Keepalive, WALEnd: position(body[1:]), ReplyRequested: body[17] != 0}, nil
	case len(body) == 0:
		return Message{}, fmt.Errorf("%w: an empty CopyData message", ErrProtocol)
	}
	return Message{}, fmt.Errorf("%w: a CopyData message of type %q and %d bytes", ErrProtocol, body[0], len(body))
}

func position(b []byte) outbox.LSN { return outbox.LSN(binary.BigEndian.Uint64(b)) }

// appendStatus encodes a standby status update in a CopyData message. All
// three positions are the confirmed one; time is in microseconds since 2000.
// https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-STANDBY-STATUS-UPDATE
func appendStatus(to []byte, confirmed outbox.LSN, micros int64, reply bool) []byte {
	to = append(to, 'd')
	to = binary.BigEndian.AppendUint32(to, 4+statusLen)
	to = append(to, 'r')
	for range 3 {
		to = binary.BigEndian.AppendUint64(to, uint64(confirmed))
	}
	to = binary.BigEndian.AppendUint64(to, uint64(micros))
	if reply {
		return append(to, 1)
	}
	return append(to, 0)
}

func parseNotice(body []byte) (Message, error) {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return Message{}, fmt.Errorf("%w: a notice that cannot be read: %w", ErrProtocol, err)
	}
	text := n.Message
	if n.Detail != "" {
		text += ": " + n.Detail
	}
	return Message{Kind: Notice, Warning: text, Code: n.Code}, nil
}
