//go:build failpoints

package failpoint

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]plan{
		"":                      {},
		"after-ack":             {name: AfterAck, at: 1},
		"after-ack:7":           {name: AfterAck, at: 7},
		"before-mark:2:1500ms":  {name: BeforeMark, at: 2, delay: 1500 * time.Millisecond},
		"after-produce:1:0s":    {name: AfterProduce, at: 1},
		"in-hand-back:20:1m30s": {name: InHandback, at: 20, delay: 90 * time.Second},
	} {
		if got, err := parse(text); got != want || err != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"nowhere:1", "after-ack:0", "after-ack:x", "after-ack:1:x", "after-ack:1:-1s", "after-ack:1:1s:1", ":1"} {
		if got, err := parse(text); err == nil || !strings.Contains(err.Error(), "OUTBOX_FAILPOINT") {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
