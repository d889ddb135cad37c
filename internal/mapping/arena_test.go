package mapping

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/creep"
)

// plainPlan is a table like im2be's, with values for it.
func plainPlan(tb testing.TB, payload int) (*Plan, []Value) {
	tb.Helper()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:        []string{"aggregate_id", "event_id"},
		Cluster:   outbox.ClusterMapping{Default: "main"},
		Topic:     outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Key:       &outbox.Expr{Column: "aggregate_id", Encoding: outbox.EncodingText},
		Payload:   outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
		Headers:   []outbox.HeaderMapping{{Name: "traceparent", Column: "traceparent", OmitNull: true}},
		EventID:   outbox.EventID{Name: "event_id", Columns: []string{"event_id"}},
		CreatedAt: "created_at",
		Published: outbox.PublishedStatus,
		Status:    outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}},
	}}
	plan, err := Compile(nil, table, []Column{
		{Name: "aggregate_id", OID: oidUUID},
		{Name: "event_id", OID: oidUUID},
		{Name: "status", OID: oidVarchar},
		{Name: "topic", OID: oidVarchar},
		{Name: "payload", OID: oidBytea},
		{Name: "created_at", OID: oidTimestamptz},
		{Name: "traceparent", OID: oidVarchar},
	})
	if err != nil {
		tb.Fatal(err)
	}
	text := func(s string) Value { return Value{Data: []byte(s), Format: Text} }
	return plan, []Value{
		text(uuid1), text("00112233-4455-6677-8899-aabbccddeeff"), text("PENDING"), text("orders"),
		text(fmt.Sprintf(`\x%0*x`, 2*payload, 1)), text("2026-01-02 03:04:05.678901+00"),
		text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
	}
}

func TestRowAllocatesNextToNothing(t *testing.T) {
	plan, values := plainPlan(t, 256)
	arena := new(Arena)
	const rows = 1000
	creep.Hold(t, "mapping: a row of 256 bytes", rows, func() {
		for range rows {
			if r := plan.Row(values, arena); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	})
}

func TestArenaInternsTopics(t *testing.T) {
	t.Parallel()
	var a Arena
	first, _ := a.topic([]byte("orders"))
	_, _ = a.topic([]byte("other"))
	again, legal := a.topic([]byte("orders"))
	if !legal || unsafe.StringData(first) != unsafe.StringData(again) {
		t.Error("the same topic twice in memory")
	}
	for i := range maxTopics + 10 {
		name := fmt.Sprint("topic-", i)
		if got, legal := a.topic([]byte(name)); got != name || !legal {
			t.Fatalf("%q became %q, %v", name, got, legal)
		}
	}
	if len(a.topics) != maxTopics {
		t.Errorf("%d topics kept", len(a.topics))
	}
	if got, legal := a.topic([]byte("a b")); got != "a b" || legal {
		t.Error("an illegal name must be told, and told to be illegal")
	}
}

func TestArenaGivesEachItsOwn(t *testing.T) {
	t.Parallel()
	var a Arena
	if b := a.bytes(0); b == nil {
		t.Error("empty is not nil")
	}
	var all [][]byte
	for i := range 2000 {
		b := a.bytes(i % 100)
		for j := range b {
			if b[j] != 0 {
				t.Fatal("memory given twice")
			}
			b[j] = 1
		}
		if cap(b) != len(b) {
			t.Fatal("an append would reach a neighbour")
		}
		all = append(all, b)
	}
	if big := a.bytes(ownBytes); len(big) != ownBytes || cap(big) != ownBytes {
		t.Error("a large value has memory of its own")
	}
	_ = all
}

func TestArenaLetsGoOfLargeScratch(t *testing.T) {
	t.Parallel()
	a := Arena{joined: make([]byte, 0, 1<<20), converted: make([]byte, 0, 1<<20), headerList: make([]outbox.Header, 0, 1<<10)}
	a.row(false)
	if a.joined != nil || a.converted != nil || a.headerList != nil {
		t.Error("scratch memory is unbounded")
	}
}

// A row that is kept does not keep a large value of another row alive: rows that were sent must not fill
// memory beyond its bound.
func TestARowKeepsNoOthersValues(t *testing.T) {
	t.Parallel()
	plan, values := plainPlan(t, 100<<10)
	values[len(values)-1].Data = bytes.Repeat([]byte("x"), 100<<10) // a header
	large := map[string]func(*outbox.Row) []byte{
		"payload": func(r *outbox.Row) []byte { return r.Value },
		"header":  func(r *outbox.Row) []byte { return r.Headers[len(r.Headers)-1].Value },
	}
	for what, of := range large {
		var arena Arena
		sent := make(chan struct{})
		runtime.AddCleanup(&of(plan.Row(values, &arena))[0], func(done chan struct{}) { close(done) }, sent)
		kept := plan.Row(values, &arena)
		if !goesAway(sent) {
			t.Errorf("the %s of a row that was sent stays in memory", what)
		}
		runtime.KeepAlive(kept)
		runtime.KeepAlive(&arena)
	}
}

// If rows have memory of their own, a single row that is kept keeps nothing of the many that were sent.
func TestARowThatStandsApartKeepsNoOther(t *testing.T) {
	t.Parallel()
	plan, values := plainPlan(t, 200)
	arena := Arena{Apart: true}
	sent, kept := plan.Row(values, &arena), plan.Row(values, &arena)
	for what, p := range map[string]*byte{"row": (*byte)(unsafe.Pointer(sent)), "payload": &sent.Value[0], "id": unsafe.StringData(sent.ID), "header": (*byte)(unsafe.Pointer(&sent.Headers[0]))} { // #nosec G103 -- a test of memory
		gone := make(chan struct{})
		runtime.AddCleanup(p, func(done chan struct{}) { close(done) }, gone)
		defer func() {
			if !goesAway(gone) {
				t.Errorf("the %s of a row that was sent stays in memory", what)
			}
			runtime.KeepAlive(kept)
			runtime.KeepAlive(&arena)
		}()
	}
}

// goesAway collects garbage until the channel is closed.
func goesAway(gone <-chan struct{}) bool {
	deadline := time.After(10 * time.Second)
	for {
		runtime.GC()
		select {
		case <-gone:
			return true
		case <-time.After(time.Millisecond):
		case <-deadline:
			return false
		}
	}
}

func BenchmarkRow(b *testing.B)      { benchmarkRow(b, new(Arena)) }
func BenchmarkRowApart(b *testing.B) { benchmarkRow(b, &Arena{Apart: true}) }

func benchmarkRow(b *testing.B, arena *Arena) {
	plan, values := plainPlan(b, 256)
	b.ReportAllocs()
	for b.Loop() {
		plan.Row(values, arena)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkRowWith is a row with 256 bytes of JSON, without a feature and with one each.
func BenchmarkRowWith(b *testing.B) {
	words := &outbox.ValueMap{Exact: map[string]string{}, Beginnings: []outbox.Beginning{{With: "com.acme.billing.", Text: "billing"}}}
	for i := range 20 {
		words.Exact[fmt.Sprint("OrderPlaced", i)] = "orders"
	}
	for _, bench := range []struct {
		name   string
		change func(*outbox.Mapping)
	}{
		{"nothing", func(*outbox.Mapping) {}},
		{"map", func(m *outbox.Mapping) { m.Topic.Columns[0].Map = words }},
		{"path", func(m *outbox.Mapping) { m.Key = &outbox.Expr{Column: "payload", Pointer: []string{"orderId"}} }},
		{"rows", func(m *outbox.Mapping) { m.Rows = []outbox.RowCondition{{Column: "broker", Values: []string{"kafka"}}} }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			plan, values := jsonPlan(b, bench.change)
			arena := new(Arena)
			b.ReportAllocs()
			for b.Loop() {
				if plan.Ours(values, arena) {
					plan.Row(values, arena)
				}
			}
		})
	}
}

func jsonPlan(tb testing.TB, change func(*outbox.Mapping)) (*Plan, []Value) {
	tb.Helper()
	plain, _ := plainPlan(tb, 1)
	table := *plain.table
	table.Mapping.ID, table.Mapping.EventID = []string{"id"}, outbox.EventID{Name: "id", Columns: []string{"id"}}
	table.Mapping.Key = &outbox.Expr{Column: "id"}
	table.Mapping.Headers = nil
	table.Mapping.Topic.Columns = []outbox.Expr{{Column: "topic"}}
	change(&table.Mapping)
	texts := map[string]string{
		"id": uuid1, "status": "PENDING", "topic": "OrderPlaced7", "broker": "kafka", "created_at": "2026-01-02 03:04:05.678901+00",
		"payload": fmt.Sprintf(`{"orderId": "7d1e", "customer": {"id": 4711, "name": "Jane"}, "items": [{"sku": "a-1", "n": 2}], "note": "%0170d"}`, 1),
	}
	cols := []Column{
		{Name: "id", OID: oidUUID},
		{Name: "status", OID: oidVarchar},
		{Name: "topic", OID: oidVarchar},
		{Name: "broker", OID: oidText},
		{Name: "payload", OID: oidJSONB},
		{Name: "created_at", OID: oidTimestamptz},
	}
	plan, err := Compile(nil, &table, cols)
	if err != nil {
		tb.Fatal(err)
	}
	var values []Value
	for _, i := range plan.Wanted() {
		values = append(values, Value{Data: []byte(texts[cols[i].Name]), Format: Text})
	}
	if r := plan.Row(values, new(Arena)); r.Err != nil {
		tb.Fatal(r.Err)
	}
	return plan, values
}
