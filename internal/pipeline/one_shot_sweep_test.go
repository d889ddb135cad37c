package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

func TestWhenASweepIsOver(t *testing.T) {
	ended := 0
	o := &oneShotSweep{status: func() status.Stream { return status.Stream{Flow: &status.Flow{}} }, giveUp: time.Minute, finish: func() { ended++ }}
	for i, p := range []struct {
		rows     int
		more     bool
		inFlight int
	}{{0, false, 0}, {5, false, 0}, {0, false, 5}, {0, true, 0}, {0, false, 0}} {
		if o.page(p.rows, p.more, p.inFlight); ended != 0 {
			t.Fatalf("over after page %d", i)
		}
	}
	if o.page(0, false, 0); ended != 1 {
		t.Error("not over after two empty pages")
	}
	if o.failed != nil {
		t.Error("it was not given up")
	}
	(*oneShotSweep)(nil).page(0, false, 0)
	(*oneShotSweep)(nil).progress(time.Now(), 0)
}

func TestASweepThatDoesNotGetOn(t *testing.T) {
	ended := 0
	st := status.Stream{Flow: &status.Flow{}, Kafka: []status.Cluster{{Name: "main", Error: "nobody answers"}, {Name: "other", Usable: true}}}
	at := time.Unix(1000, 0)
	o := &oneShotSweep{status: func() status.Stream { return st }, giveUp: 10 * time.Second, finish: func() { ended++ }, progressed: at}
	o.page(0, false, 0)
	o.page(0, false, 0)
	if ended != 0 {
		t.Error("over though a cluster's rows were left out")
	}
	o.progress(at.Add(9*time.Second), 3) // rows came into flight
	o.progress(at.Add(18*time.Second), 3)
	if ended != 0 {
		t.Error("given up in spite of progress")
	}
	o.progress(at.Add(19*time.Second), 3)
	err := o.failed
	if ended != 1 || err == nil || !strings.Contains(err.Error(), "Kafka cluster main cannot be used: nobody answers") {
		t.Error(ended, err)
	}
}
