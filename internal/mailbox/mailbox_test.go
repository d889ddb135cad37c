package mailbox_test

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
)

// A signal can come for what was taken already. The taker keeps the buffer that it gives
// then, and the mailbox does not write to it.
func TestAnEmptyTakeLeavesTheSpareToItsTaker(t *testing.T) {
	m := mailbox.New[int]()
	m.Put(1, 2, 3)
	buffer := m.Take(nil)
	if taken := m.Take(buffer); taken != nil {
		t.Fatalf("took %v of an empty mailbox", taken)
	}
	m.Put(4)
	if buffer[0] != 1 {
		t.Fatalf("the mailbox wrote to a buffer that it was not given: %v", buffer)
	}
	if taken := m.Take(buffer); len(taken) != 1 || taken[0] != 4 {
		t.Errorf("took %v instead of what was put", taken)
	}
	m.Put(5)
	if buffer[0] != 5 {
		t.Errorf("the spare buffer was not used: %v", buffer)
	}
}
