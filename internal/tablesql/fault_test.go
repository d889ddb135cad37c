package tablesql

import (
	"errors"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A table is named once, and another one is not taken for it.
func TestATableIsNamedOnce(t *testing.T) {
	t.Parallel()
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	for text, want := range map[string]string{
		"table public.outbox does not exist":         "table public.outbox does not exist",
		`table public.outbox: column "x" is missing`: `table public.outbox: column "x" is missing`,
		"table public.outbox_headers does not exist": "table public.outbox refuses: table public.outbox_headers does not exist",
		"permission denied":                          "table public.outbox refuses: permission denied",
	} {
		if got := (&TableError{Table: table, Err: errors.New(text)}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
