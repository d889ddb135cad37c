package mapping

import (
	"errors"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Mapping.Columns, which other packages use, has every column that this package looks for.
func TestTheListOfColumnsIsWhole(t *testing.T) {
	t.Parallel()
	m := outbox.Mapping{
		ID:      []string{"id"},
		Rows:    []outbox.RowCondition{{Column: "ours", Values: []string{"x"}}},
		Cluster: outbox.ClusterMapping{Column: "cluster"},
		Topic:   outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic", Or: []outbox.Expr{{Column: "other topic"}}}}},
		Key: &outbox.Expr{Column: "key", Parts: &outbox.Template{
			Literals: []string{"", "-", ""}, Columns: []outbox.Expr{{Column: "key"}, {Column: "second key"}},
		}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}, Object: []outbox.Member{
			{Name: "a", Column: "payload", Form: outbox.MemberString}, {Name: "b", Column: "member", Form: outbox.MemberJSON},
		}},
		Headers: []outbox.HeaderMapping{
			{Name: "h", Column: "header", Or: []outbox.Expr{{Column: "other header"}}},
			{JSON: "json"},
			{Name: "t", Trace: &outbox.TraceMapping{TraceIDHigh: "high", TraceID: "low", SpanID: "span", Sampled: "sampled", Format: outbox.TraceW3C}},
		},
		EventID:   outbox.EventID{Name: "event", Columns: []string{"event id"}},
		Partition: "partition", Timestamp: "time", CreatedAt: "created", AvailableAfter: []string{"after"}, Order: []string{"order"},
		Writer: outbox.WriterMapping{Column: "writer", Until: "until"},
		Status: outbox.StatusMapping{
			Column: "status", Pending: []string{"NEW"}, Sent: "SENT", SentAt: "sent", FailedAt: "failed", SentBy: []string{"by"}, Resend: "resend",
			Attempts: "attempts", MaxAttempts: 3, MaxAttemptsColumn: "most", LastError: "error", Version: "version", TouchedAt: "touched", ExpiresAt: "expires",
		},
	}
	sorted := func(names []string) []string { slices.Sort(names); return slices.Compact(names) }
	refused, ok := errors.AsType[*Error](Verify(&outbox.Table{Schema: "public", Name: "t", Mapping: m}, nil))
	if !ok {
		t.Fatal("a table without columns serves")
	}
	var looked []string
	for _, f := range refused.Faults {
		if f.Column == "" {
			t.Errorf("the mapping itself is at fault: %+v", f)
		}
		looked = append(looked, f.Column)
	}
	if got, want := sorted(m.Columns(outbox.UseAny)), sorted(looked); !slices.Equal(got, want) {
		t.Errorf("listed are %q, looked for %q", got, want)
	}
}
