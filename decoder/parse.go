package decoder

import (
	"encoding/binary"

	"github.com/jackc/pglogrepl"
)

// parse has pglogrepl read a message. It alone makes up for pglogrepl, which panics on messages
// that end too early and ignores bytes behind their end.
func parse(frame []byte) (m pglogrepl.Message, problem *Error) {
	defer func() {
		if recover() != nil { // an index out of range
			m, problem = nil, &Error{What: truncated}
		}
	}()
	// pglogrepl reserves memory for as many relations as a Truncate says.
	const head = 1 + 4 + 1
	if frame[0] == msgTruncate && int64(binary.BigEndian.Uint32(frame[1:])) > int64(len(frame)-head)/4 {
		return nil, &Error{What: truncated}
	}
	m, err := pglogrepl.Parse(frame)
	return m, read(m, err, frame)
}

// read says what is wrong with a message that pglogrepl has read or could not read.
func read(m pglogrepl.Message, err error, frame []byte) *Error {
	switch {
	case err != nil: // too short, or a text without its end
		return &Error{What: truncated}
	case lengthOf(m) < len(frame):
		return &Error{What: tooLong}
	}
	return nil
}

// lengthOf is how many bytes a message has, with that of its type.
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
