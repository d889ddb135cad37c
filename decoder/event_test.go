package decoder

import "fmt"

var kindNames = [...]string{"", "begin", "rows", "commit", "table broken", "table mapped", "passed", "unmapped"}

func (k Kind) String() string { return kindNames[k] }

// String returns one line. It contains no key, payload or header.
func (e Event) String() string {
	switch e.Kind {
	case Begin:
		return fmt.Sprintf("begin %d committing at %s", e.Transaction.XID, e.Transaction.Commit)
	case Commit:
		return fmt.Sprintf("commit %d up to %s", e.Transaction.XID, e.Transaction.End)
	case Rows:
		return fmt.Sprintf("%d rows", len(e.Rows))
	case TableBroken:
		return fmt.Sprintf("broken %s: %v", e.Table, e.Err)
	case Passed:
		return fmt.Sprintf("passed %d rows of %s", e.Count, e.Table)
	case Unmapped:
		return "unmapped " + e.Name
	}
	return e.Kind.String() + " " + e.Table.String()
}
