package tablesql

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
)

// WithNewNames adds to a refusal for missing columns what became of them. renamed maps the mapping's column
// names to the present names, which are empty for dropped columns. WithNewNames returns any other error
// unchanged.
func WithNewNames(err error, renamed map[string]string) error {
	if unfit, is := errors.AsType[*MappingError](err); is {
		if now, known := renamed[unfit.Column]; known {
			told := *unfit
			told.Hint = ColumnCalled(now)
			return &told
		}
	}
	unmapped, is := errors.AsType[*mapping.Error](err)
	if !is {
		return err
	}
	told := &mapping.Error{Table: unmapped.Table, Faults: slices.Clone(unmapped.Faults)}
	changed := false
	for i := range told.Faults {
		f := &told.Faults[i]
		if now, known := renamed[f.Column]; known && f.Type == "" {
			f.Hint, changed = ColumnCalled(now), true
		}
	}
	if !changed {
		return err
	}
	return told
}

// ColumnCalled returns what to do about a column that was renamed, or dropped (now is empty).
func ColumnCalled(now string) string {
	if now == "" {
		return "it was dropped; add it again, or map another column"
	}
	return fmt.Sprintf("it is called %q now; map that, or rename it back", now)
}
