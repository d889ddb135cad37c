package mapping

import (
	"reflect"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"pgregory.net/rapid"
)

// deferred is a table of rows that their writer may send, with a trace context.
func deferred() (*outbox.Table, []Column) {
	t := &outbox.Table{Schema: "public", Name: "deferred", Mapping: outbox.Mapping{
		ID:      []string{"id"},
		Cluster: outbox.ClusterMapping{Default: "main"},
		Topic:   outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "message"}},
		Headers: []outbox.HeaderMapping{
			{Name: "traceparent", Trace: &outbox.TraceMapping{TraceIDHigh: "high", TraceID: "trace", SpanID: "span", Sampled: "sampled", Format: outbox.TraceW3C}},
			{Name: "b3", Trace: &outbox.TraceMapping{TraceIDHigh: "high", TraceID: "trace", SpanID: "span", Sampled: "sampled", Format: outbox.TraceB3}},
		},
		Published: outbox.PublishedStatus,
		Status: outbox.StatusMapping{
			SentAt: "sent", FailedAt: "failed", SentBy: []string{"sent_by_writer"}, Resend: "resend",
		},
		Writer: outbox.WriterMapping{Column: "immediately", Until: "until"},
	}}
	return t, []Column{
		{Name: "id", OID: oidInt8},
		{Name: "topic", OID: oidText},
		{Name: "message", OID: oidBytea},
		{Name: "high", OID: oidInt8},
		{Name: "trace", OID: oidInt8},
		{Name: "span", OID: oidInt8},
		{Name: "sampled", OID: oidBool},
		{Name: "sent", OID: oidTimestamptz},
		{Name: "failed", OID: oidTimestamptz},
		{Name: "sent_by_writer", OID: oidTimestamptz},
		{Name: "resend", OID: oidBool},
		{Name: "immediately", OID: oidBool},
		{Name: "until", OID: oidTimestamptz},
	}
}

func TestRowsOfTheWriterAndRowsAskedForAgain(t *testing.T) {
	t.Parallel()
	const at, micros = "2026-01-02 03:04:05.678901+00", 1767323045678901
	for name, c := range map[string]struct {
		values  map[string]any
		pending bool
		due     int64
	}{
		"ours":                            {map[string]any{"immediately": "f"}, true, 0},
		"nobody says whose":               {nil, true, outbox.Never},
		"the writer's, until when?":       {map[string]any{"immediately": "t"}, true, outbox.Never},
		"the writer's until":              {map[string]any{"immediately": "t", "until": at}, true, micros + 1},
		"the writer's for ever":           {map[string]any{"immediately": "t", "until": "infinity"}, true, outbox.Never},
		"ours for long":                   {map[string]any{"immediately": "t", "until": "-infinity"}, true, 0},
		"ours, whatever the time":         {map[string]any{"immediately": "f", "until": at}, true, 0},
		"sent":                            {map[string]any{"immediately": "f", "sent": at}, false, 0},
		"sent by the writer":              {map[string]any{"immediately": "f", "sent_by_writer": at}, false, 0},
		"failed":                          {map[string]any{"immediately": "f", "failed": at, "resend": "f"}, false, 0},
		"failed, asked for again":         {map[string]any{"immediately": "f", "failed": at, "resend": "t"}, true, 0},
		"sent, asked for again":           {map[string]any{"sent": at, "resend": "t"}, true, 0},
		"the writer's, asked for already": {map[string]any{"immediately": "t", "resend": "t"}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			table, cols := deferred()
			values := map[string]any{"id": "1", "topic": "orders", "message": `\x61`}
			for k, v := range c.values {
				values[k] = v
			}
			r := rowOf(t, table, cols, values)
			if r.Err != nil || r.Pending != c.pending || r.AvailableAt != c.due {
				t.Errorf("pending %v, due %d, %v", r.Pending, r.AvailableAt, r.Err)
			}
		})
	}
}

func TestTraceContexts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		high, trace, span, sampled any
		w3c, b3                    string
	}{
		"signed":         {"-1", "-9223372036854775808", "255", "t", "00-ffffffffffffffff8000000000000000-00000000000000ff-01", "ffffffffffffffff8000000000000000-00000000000000ff-1"},
		"64 bits":        {"0", "1", "2", "f", "00-00000000000000000000000000000001-0000000000000002-00", "0000000000000001-0000000000000002-0"},
		"NULLs":          {nil, "1", "2", nil, "00-00000000000000000000000000000001-0000000000000002-01", "0000000000000001-0000000000000002-1"},
		"no trace":       {"1", nil, "2", nil, "", ""},
		"no low half":    {"1", "0", "2", "t", "00-00000000000000010000000000000000-0000000000000002-01", "00000000000000010000000000000000-0000000000000002-1"},
		"no span":        {"1", "1", nil, nil, "", ""},
		"an empty trace": {"0", "0", "2", "t", "", ""},
		"an empty span":  {"1", "1", "0", "t", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			table, cols := deferred()
			r := rowOf(t, table, cols, map[string]any{
				"id": "1", "topic": "orders", "message": `\x61`, "immediately": "f",
				"high": c.high, "trace": c.trace, "span": c.span, "sampled": c.sampled,
			})
			var want []outbox.Header
			if c.w3c != "" {
				want = []outbox.Header{{Name: "traceparent", Value: []byte(c.w3c)}, {Name: "b3", Value: []byte(c.b3)}}
			}
			if r.Err != nil || len(want)+len(r.Headers) > 0 && !reflect.DeepEqual(r.Headers, want) {
				t.Errorf("%q, %v", r.Headers, r.Err)
			}
		})
	}
}

// A value that cannot be read makes the row fail, and does not hide the row.
func TestFlagsAndTracesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"resend", "immediately", "until", "high", "trace", "span", "sampled"} {
		for _, bad := range []any{"x", "true", "", Value{Format: Unchanged}, Value{Data: []byte{2}, Format: Binary}} {
			table, cols := deferred()
			table.Mapping.Headers = table.Mapping.Headers[:1]
			values := map[string]any{"id": "1", "topic": "orders", "message": `\x61`, "immediately": "t", "until": "infinity", "high": "1", "trace": "1", "span": "1", "sampled": "t"}
			values[column] = bad
			if column == "resend" {
				values["sent"] = "2026-01-02 03:04:05+00"
			}
			if r := rowOf(t, table, cols, values); r.Err == nil || !r.Pending || !strings.HasPrefix(r.Err.Error(), `column "`+column+`" `) {
				t.Errorf("%s: %v: pending %v, %v", column, bad, r.Pending, r.Err)
			}
		}
	}
}

func TestRowsBesideInTextAndBinary(t *testing.T) {
	t.Parallel()
	table, cols := deferred()
	plan, err := Compile(nil, table, cols)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var inText, inBinary []Value
		for _, i := range plan.Wanted() {
			a, b := both(t, cols[i].Name, cols[i].OID)
			inText, inBinary = append(inText, a), append(inBinary, b)
		}
		fromText, fromBinary := plan.Row(inText, new(Arena)), plan.Row(inBinary, new(Arena))
		if !reflect.DeepEqual(fromText, fromBinary) {
			t.Fatalf("text   %+v (%v)\nbinary %+v (%v)", fromText, fromText.Err, fromBinary, fromBinary.Err)
		}
	})
}

func TestColumnsBesideThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		column string
		oid    uint32
		want   string
	}{
		"resend":  {"resend", oidText, `table public.deferred: column "resend" (text) cannot be a flag: map a boolean column`},
		"writer":  {"immediately", oidInt4, `table public.deferred: column "immediately" (integer) cannot be a flag: map a boolean column`},
		"until":   {"until", oidText, `table public.deferred: column "until" (text) cannot be a time: map a timestamptz or timestamp column`},
		"sent by": {"sent_by_writer", oidBool, `table public.deferred: column "sent_by_writer" (boolean) cannot be the time of sending or failing: map a timestamptz or timestamp column`},
		"span":    {"span", oidText, `table public.deferred: column "span" (text) cannot be part of a trace context: map a bigint column`},
	} {
		t.Run(name, func(t *testing.T) {
			table, cols := deferred()
			table.Mapping.Headers = table.Mapping.Headers[:1]
			for i := range cols {
				if cols[i].Name == c.column {
					cols[i].OID = c.oid
				}
			}
			if _, err := Compile(nil, table, cols); err == nil || err.Error() != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}
