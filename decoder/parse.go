package decoder

import (
	"encoding/binary"

	"github.com/jackc/pglogrepl"
)

// parse has pglogrepl read a message. It is the one place that bears with what
// pglogrepl does not check: it panics on messages that end too early, and ignores
// bytes that are left over.
func parse(frame []byte) (m pglogrepl.Message, p problem) {
	defer func() {
		if recover() != nil { // an index out of range
			m, p = nil, problem{what: truncated}
		}
	}()
	if frame[0] == msgTruncate && !relationsFit(frame) {
		return nil, problem{what: truncated}
	}
	m, err := pglogrepl.Parse(frame)
	return m, held(m, err, frame)
}

// held is the problem of a message that was read, or could not be.
func held(m pglogrepl.Message, err error, frame []byte) problem {
	switch {
	case err != nil: // too short, or a text without its end
		return problem{what: truncated}
	case lengthOf(m) < len(frame):
		return problem{what: tooLong}
	}
	return problem{}
}

// relationsFit says whether a Truncate has as many relations as it says, for
// which pglogrepl reserves memory before it reads them.
func relationsFit(frame []byte) bool {
	const head = 1 + 4 + 1
	return int64(binary.BigEndian.Uint32(frame[1:])) <= int64(len(frame)-head)/4
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
