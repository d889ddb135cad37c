package outbox

import (
	"slices"
	"testing"
)

// Each column of a mapping has its use.
func TestColumnsByTheirUse(t *testing.T) {
	m := Mapping{
		ID:      []string{"id1", "id2"},
		Rows:    []RowCondition{{Column: "ours"}},
		Cluster: ClusterMapping{Column: "cluster"},
		Topic:   Template{Literals: []string{"", "", ""}, Columns: []Expr{{Column: "topic1", Or: []Expr{{Column: "topic2"}}}, {Column: "topic3"}}},
		Key:     &Expr{Column: "key1", Parts: &Template{Columns: []Expr{{Column: "key1"}, {Column: "key2"}}}},
		Payload: PayloadMapping{Expr: Expr{Column: "payload1"}, Object: []Member{{Column: "payload2"}, {Value: "constant"}}},
		Headers: []HeaderMapping{
			{Name: "h", Column: "header1", Or: []Expr{{Column: "header2"}}},
			{JSON: "json"},
			{Name: "c", Value: "constant"},
			{Name: "t", Trace: &TraceMapping{TraceIDHigh: "high", TraceID: "low", SpanID: "span", Sampled: "sampled"}},
		},
		EventID:   EventID{Name: "event", Columns: []string{"event1", "event2"}},
		Partition: "partition", Timestamp: "time", CreatedAt: "created", AvailableAfter: []string{"after1", "after2"},
		Order:  []string{"order1", "order2"},
		Writer: WriterMapping{Column: "writer", Until: "until"},
		Status: StatusMapping{
			Column: "status", SentAt: "sent", FailedAt: "failed", SentBy: []string{"by1", "by2"}, Resend: "resend", Attempts: "attempts",
			MaxAttemptsColumn: "most", LastError: "error", Version: "version", TouchedAt: "touched", ExpiresAt: "expires",
		},
	}
	uses := map[Use][]string{
		UseID: {"id1", "id2"}, UseOrder: {"order1", "order2"}, UseRows: {"ours"}, UseCluster: {"cluster"},
		UseTopic: {"topic1", "topic2", "topic3"}, UseKey: {"key1", "key1", "key2"},
		UseRecord: {"payload1", "payload2", "partition", "time", "event1", "event2", "header1", "header2", "json", "high", "low", "span", "sampled"},
		UseTime:   {"created", "writer", "until", "after1", "after2"},
		UseState:  {"status", "sent", "failed", "resend", "by1", "by2"}, UseBudget: {"attempts", "most"},
		UseMark: {"status", "sent", "failed", "attempts", "error", "version", "resend", "touched", "expires"},
	}
	var every []string
	for use, want := range uses {
		if got := m.Columns(use); !slices.Equal(got, want) {
			t.Errorf("of use %b: %q, not %q", use, got, want)
		}
		every = append(every, want...)
	}
	sorted := func(names []string) []string { slices.Sort(names); return slices.Compact(names) }
	if got, want := sorted(m.Columns(UseAny)), sorted(every); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	if got := new(Mapping).Columns(UseAny); len(got) > 0 {
		t.Errorf("an empty mapping has the columns %q", got)
	}
}
