package postgres

import (
	"errors"
	"fmt"
	"testing"
)

// A hint, or what was being done, is added to an error: it stays as permanent as it was.
func TestPermanentWhateverIsAdded(t *testing.T) {
	cause := &Error{Permanent: true, What: "make a slot", Err: errors.New("no")}
	for _, err := range []error{cause, WithHint(cause, "do this"), fmt.Errorf("start: %w", &Error{What: "lead", Err: fmt.Errorf("first: %w", cause)})} {
		if !Permanent(err) {
			t.Errorf("%v passes", err)
		}
	}
	for _, err := range []error{nil, errors.New("no"), WithHint(errors.New("no"), "do this")} {
		if Permanent(err) {
			t.Errorf("%v is permanent", err)
		}
	}
}
