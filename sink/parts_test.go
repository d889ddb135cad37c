package sink

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
)

func TestManyTopicsHaveTheirTurns(t *testing.T) {
	m := newMachine("main", machineConfig{refresh: time.Minute, topicGrace: time.Hour}, nil)
	now := time.Unix(1_000_000, 0)
	for i := range maxAsked + 100 {
		top := newTopic(fmt.Sprintf("t%04d", i))
		top.asked = now.Add(time.Duration(-i/2) * time.Second) // two at a time
		if i < 50 {
			top.waiting.push(newRow(top.name, "k", "v"))
		}
		if i >= 50 && i < 60 { // its rows wait, but not for this
			top.state = topicDraining
			top.waiting.push(newRow(top.name, "k", "v"))
		}
		m.topics[top.name] = top
	}
	m.topics["t0001"].state = topicBlocked
	names := m.askable()
	if len(names) != maxAsked {
		t.Fatalf("%d topics", len(names))
	}
	for i, want := range map[int]string{0: "t0048", 1: "t0049", 2: "t0046", 48: "t0000", 49: "t1098", 50: "t1099", maxAsked - 1: "t0148"} {
		if names[i] != want {
			t.Errorf("topic %d is %s, not %s", i, names[i], want)
		}
	}
	// Each has its turn within the refresh time.
	m.tick(now)
	if m.take().ask == nil {
		t.Fatal("nothing is asked")
	}
	infos := map[string]topicInfo{}
	for _, name := range names {
		infos[name] = topicInfo{leaders: []string{"b"}}
	}
	m.metadata(names, infos, nil)
	m.tick(now)
	if got, want := m.next().Sub(now), time.Minute*maxAsked/(maxAsked+99); got != want {
		t.Errorf("next after %v, not %v", got, want)
	}
	if got := m.topics[names[0]].asked; !got.Equal(now) {
		t.Errorf("asked at %v", got)
	}
}

func journalled(t *testing.T, known string, info topicInfo) (*machine, work) {
	t.Helper()
	m := newMachine("main", machineConfig{
		refresh: time.Minute, outageAfter: time.Second,
		transactions: &Transactions{Journal: "journal", MaxRows: 5, Timeout: time.Minute, Tally: exactlyonce.Tally{Journal: known}},
	}, nil)
	m.tick(time.Unix(1_000_000, 0))
	if ask := m.take().ask; ask == nil || !slices.Contains(ask.topics, "journal") {
		t.Fatalf("asked: %+v", ask)
	}
	m.metadata([]string{"journal"}, map[string]topicInfo{"journal": info}, nil)
	m.tick(m.now)
	return m, m.take()
}

func TestTroubleOfTheJournalPasses(t *testing.T) {
	good := topicInfo{uuid: sarama.Uuid{1}, leaders: []string{"b"}}
	m, _ := journalled(t, "", good)
	hear := func(info topicInfo) (time.Time, error) {
		m.now = m.now.Add(time.Second)
		m.metadata([]string{"journal"}, map[string]topicInfo{"journal": info}, nil)
		m.tick(m.now)
		m.take()
		return m.trouble()
	}
	missing := topicInfo{code: sarama.ErrUnknownTopicOrPartition}
	first, err := hear(missing)
	if err == nil || !first.Equal(m.now) {
		t.Errorf("trouble since %v: %v", first, err)
	}
	if since, err := hear(missing); err == nil || !since.Equal(first) {
		t.Errorf("trouble since %v: %v", since, err)
	}
	if _, err := hear(good); err != nil {
		t.Errorf("still: %v", err)
	}
}
