package decoder

import (
	"encoding/binary"

	"github.com/jackc/pglogrepl"
)

// parse makes pglogrepl read a message. It guards against pglogrepl's faults: a panic on a message that is
// too short, and bytes after the end that are ignored.
func parse(frame []byte) (m pglogrepl.Message, problem *Error) {
	defer func() {
		if recover() != nil { // an index out of range
			m, problem = nil, &Error{What: truncated}
		}
	}()
	// pglogrepl allocates memory for as many relations as a Truncate message claims to have.
	const head = 1 + 4 + 1
	if frame[0] == msgTruncate && int64(binary.BigEndian.Uint32(frame[1:])) > int64(len(frame)-head)/4 {
		return nil, &Error{What: truncated}
	}
	m, err := pglogrepl.Parse(frame)
	return m, read(m, err, frame)
}

// read returns what is wrong with a message that pglogrepl has read, or could not read; nil: nothing.
func read(m pglogrepl.Message, err error, frame []byte) *Error {
	switch {
	case err != nil: // the message is too short, or a text has no terminator
		return &Error{What: truncated}
	case lengthOf(m) < len(frame):
		return &Error{What: tooLong}
	}
	return nil
}

// lengthOf returns a message's length in bytes, including its type byte.
func lengthOf(message pglogrepl.Message) int {
	switch m := message.(type) {
	case *pglogrepl.BeginMessage:
		return 1 + 8 + 8 + 4
	case *pglogrepl.CommitMessage:
		return 1 + 1 + 8 + 8 + 8
	case *pglogrepl.OriginMessage:
		return 1 + 8 + len(m.Name) + 1
	case *pglogrepl.TypeMessage:
		return 1 + 4 + len(m.Namespace) + 1 + len(m.Name) + 1
	case *pglogrepl.TruncateMessage:
		return 1 + 4 + 1 + 4*len(m.RelationIDs)
	case *pglogrepl.RelationMessage:
		n := 1 + 4 + len(m.Namespace) + 1 + len(m.RelationName) + 1 + 1 + 2
		for _, c := range m.Columns {
			n += 1 + len(c.Name) + 1 + 4 + 4
		}
		return n
	}
	return 0
}
