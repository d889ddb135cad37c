package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/status"
)

func TestErrorsAlikeAreCountedTogether(t *testing.T) {
	var r recent
	at := time.Unix(1000, 0)
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	o := outbox.Outcome{Class: outbox.Refused, Err: errors.New("too large"), Rows: []*outbox.Row{{Table: table, Topic: "t", ID: "1"}, {Table: table, Topic: "t", ID: "2"}, {Table: table, Topic: "u", ID: "3"}}}
	r.refusals(&o, at)
	if len(r.errors) != 2 || r.errors[0].Count != 2 || r.errors[0].Example != "public.outbox 1" || r.errors[1].About != "topic u" {
		t.Errorf("%+v", r.errors)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	var r recent
	at := time.Unix(1000, 0)
	for i := range 1000 {
		at = at.Add(sampleEvery)
		r.happened(at, "mode", fmt.Sprint(i))
		r.went(at, "t", strings.Repeat("é", i), "")
		r.sample(at, uint64(i), &status.Slot{Lag: 5})
	}
	if len(r.events) != keptEvents || r.events[keptEvents-1].Text != "999" || len(r.errors) != keptErrors || len(r.history) != keptHistory {
		t.Error(len(r.events), len(r.errors), len(r.history))
	}
	for _, g := range r.errors {
		if len(g.Text) > keptText+3 || !strings.HasPrefix(g.Text, "é") {
			t.Errorf("%d bytes", len(g.Text))
		}
	}
	if p := r.history[keptHistory-1]; p.PerSecond != 0.1 || p.Lag != 5 || !p.At.Equal(at) {
		t.Errorf("%+v", p)
	}
}
