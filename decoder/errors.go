package decoder

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Error is a message that breaks the protocol or is not understood. Nothing of
// it, and nothing after it, may be taken for read: the connection must end
// without a confirmation beyond the transactions before.
type Error struct {
	Message byte // its type, 0 for an empty message
	// Transaction is the open one; zero outside.
	Transaction outbox.Transaction
	What        string
	// NeedsText says that nothing is wrong but the form: the next connection has
	// to ask the server for text.
	NeedsText bool
}

func (e *Error) Error() string {
	text := "decoding pgoutput: message " + fmt.Sprintf("%q", e.Message)
	if e.Transaction.Commit != 0 {
		text += fmt.Sprintf(" in transaction %d, which commits at %s,", e.Transaction.XID, e.Transaction.Commit)
	}
	return text + " " + e.What
}
