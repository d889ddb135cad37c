package decoder

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Error reports a message that breaks the protocol or is not understood. Neither this message nor any later
// one may be confirmed: end the connection, and confirm only the transactions before it.
type Error struct {
	Message byte // the message's type; 0 for an empty message
	// Transaction is the open transaction; zero outside of one.
	Transaction outbox.Transaction
	What        string
	// NeedsText says that only the binary format is the problem: the next connection has to ask the server
	// for text.
	NeedsText bool
}

func (e *Error) Error() string {
	text := "decoding pgoutput: message " + fmt.Sprintf("%q", e.Message)
	if e.Transaction.Commit != 0 {
		text += fmt.Sprintf(" in transaction %d, which commits at %s,", e.Transaction.XID, e.Transaction.Commit)
	}
	return text + " " + e.What
}
