//go:build failpoints

package failpoint

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	if got, err := parse(""); got != nil || err != nil {
		t.Errorf("nothing: %v, %v", got, err)
	}
	for text, want := range map[string]*plan{
		"after-ack":             {name: AfterAck, at: 1},
		"after-ack:7":           {name: AfterAck, at: 7},
		"before-mark:2:1500ms":  {name: BeforeMark, at: 2, delay: 1500 * time.Millisecond},
		"after-produce:1:0s":    {name: AfterProduce, at: 1},
		"in-hand-back:20:1m30s": {name: InHandback, at: 20, delay: 90 * time.Second},
		"before-slot:3:error":   {name: BeforeSlot, at: 3, fail: true},
	} {
		if got, err := parse("mode-change," + text); len(got) != 2 || !same(got[1], want) || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"nowhere:1", "after-ack:0", "after-ack:x", "after-ack:1:x", "after-ack:1:-1s", "after-ack:1:1s:1", ":1", "after-ack,", "after-ack:1:error:1",
	} {
		if got, err := parse(text); err == nil || !strings.Contains(err.Error(), "OUTBOX_FAILPOINT") {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func same(a, b *plan) bool {
	return a.name == b.name && a.at == b.at && a.delay == b.delay && a.fail == b.fail
}

// Each plan counts for itself, and acts once.
func TestErrorsComeOnce(t *testing.T) {
	before := armed
	defer func() { armed = before }()
	armed, _ = parse("after-ack:2:error,after-mark:1:error,after-ack:3:error")
	var met []bool
	for _, name := range []string{AfterAck, AfterAck, AfterMark, AfterAck, AfterAck, AfterAck, AfterMark, BeforeSlot} {
		err := Here(name)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", name, err)
		}
		met = append(met, err != nil)
	}
	if want := []bool{false, true, true, true, false, false, false, false}; !slices.Equal(met, want) {
		t.Errorf("errors %v, wanted %v", met, want)
	}
}
