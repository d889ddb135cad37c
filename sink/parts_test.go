package sink

import (
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
)

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
