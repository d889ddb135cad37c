package tablesql

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func TestAMissingColumnIsOfferedItsNewName(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	unfit := &MappingError{Table: table, Column: "sent_at", Problem: `has no column "sent_at"`, Hint: "add it"}
	unmapped := &mapping.Error{Table: table, Faults: []mapping.ColumnFault{
		{Column: "payload", Problem: "does not exist", Hint: "map another"}, {Column: "sent_at", Type: "text", Problem: "cannot be a time", Hint: "map a time"},
	}}
	renamed := map[string]string{"sent_at": "done_at", "payload": ""}
	for _, c := range []struct {
		err     error
		renamed map[string]string
		want    string
	}{
		{&TableError{Table: table, Err: unfit}, renamed, `table public.outbox has no column "sent_at": it is called "done_at" now; map that, or rename it back`},
		{unfit, nil, `table public.outbox has no column "sent_at": add it`},
		{unmapped, renamed, `table public.outbox: column "payload" does not exist: it was dropped; add it again, or map another column; column "sent_at" (text) cannot be a time: map a time`},
		{unmapped, map[string]string{"sent_at": "x"}, unmapped.Error()},
		{fmt.Errorf("sweep: %w", unmapped), nil, "sweep: " + unmapped.Error()},
		{io.EOF, renamed, "EOF"},
	} {
		if got := WithNewNames(c.err, c.renamed); got.Error() != c.want || errors.Is(got, io.EOF) != errors.Is(c.err, io.EOF) {
			t.Errorf("%v: %v, want %s", c.err, got, c.want)
		}
	}
	if !strings.Contains(unfit.Error()+unmapped.Error(), "add it") || FaultOf(WithNewNames(unfit, renamed)) != TableRefused {
		t.Error("the error that is told was altered, or is no refusal")
	}
}
