package mapping

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// full is a table that uses everything, in an order unlike the mapping's.
func full() (*outbox.Table, []Column) {
	t := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:      []string{"aggregate_id", "event_id"},
		Cluster: outbox.ClusterMapping{Column: "cluster", Default: "main", Known: []string{"main", "side"}},
		Topic:   outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Key:     &outbox.Expr{Column: "aggregate_id", Encoding: outbox.EncodingText},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
		Headers: []outbox.HeaderMapping{
			{Name: "traceparent", Column: "trace", OmitNull: true},
			{Name: "type", Column: "type"},
			{Name: "source", Value: "orders"},
			{JSON: "headers"},
		},
		EventID:        outbox.EventID{Name: "id", Columns: []string{"aggregate_id", "event_id"}},
		Partition:      "partition",
		Timestamp:      "at",
		CreatedAt:      "created_at",
		AvailableAfter: []string{"due"},
		Published:      outbox.PublishedStatus,
		Status:         outbox.StatusMapping{Column: "status", Pending: []string{"PENDING", "NEW"}, Sent: "SENT", Failed: "FAILED"},
	}}
	return t, []Column{
		{Name: "unmapped", OID: oidBytea},
		{Name: "status", OID: oidVarchar},
		{Name: "aggregate_id", OID: oidUUID},
		{Name: "event_id", OID: oidInt8},
		{Name: "cluster", OID: oidText},
		{Name: "topic", OID: oidText},
		{Name: "payload", OID: oidBytea},
		{Name: "trace", OID: oidVarchar},
		{Name: "type", OID: oidText},
		{Name: "headers", OID: oidJSONB},
		{Name: "partition", OID: oidInt4},
		{Name: "at", OID: oidTimestamptz},
		{Name: "created_at", OID: oidTimestamptz},
		{Name: "due", OID: oidTimestamp},
		{Name: "retries", OID: oidInt4},
	}
}

const uuid1 = "123e4567-e89b-12d3-a456-426614174000"

// texts are the text values of full's columns; nil is NULL.
func texts() map[string]any {
	return map[string]any{
		"unmapped": `\x00`, "status": "PENDING", "aggregate_id": uuid1, "event_id": "7", "cluster": nil, "topic": "orders",
		"payload": `\x00ff61`, "trace": nil, "type": nil, "headers": nil, "partition": nil, "at": nil,
		"created_at": "2026-01-02 03:04:05.678901+00", "due": nil, "retries": "0",
	}
}

// rowOf maps values by name; a string is text, nil NULL, a Value itself.
func rowOf(t *testing.T, table *outbox.Table, cols []Column, values map[string]any) *outbox.Row {
	t.Helper()
	plan, err := Compile(nil, table, cols)
	if err != nil {
		t.Fatal(err)
	}
	var given []Value
	for _, i := range plan.Wanted() {
		switch v := values[cols[i].Name].(type) {
		case string:
			given = append(given, Value{Data: []byte(v), Format: Text})
		case Value:
			given = append(given, v)
		default:
			given = append(given, Value{Format: Null})
		}
	}
	return plan.Row(given, new(Arena))
}

func TestRow(t *testing.T) {
	t.Parallel()
	type change struct {
		name    string
		values  map[string]any
		mapping func(*outbox.Mapping)
		columns map[string]uint32
		want    func(*outbox.Row)
		err     string // Err's text
	}
	bin := func(data ...byte) Value { return Value{Data: data, Format: Binary} }
	unchanged := Value{Format: Unchanged}
	tests := []change{
		{name: "plain"},
		{name: "every optional column set", values: map[string]any{
			"cluster": "side", "trace": "00-ab-cd-01", "type": "OrderPlaced", "headers": `{"a": "1", "b": null}`,
			"partition": "5", "at": "2026-01-02 03:04:05.678901+00", "due": "1970-01-01 00:00:01",
		}, want: func(r *outbox.Row) {
			r.Cluster, r.Partition, r.Timestamp, r.AvailableAt = "side", 5, 1767323045678, 1_000_000
			r.Headers = []outbox.Header{
				{Name: "id", Value: []byte(uuid1 + ":7")},
				{Name: "traceparent", Value: []byte("00-ab-cd-01")},
				{Name: "type", Value: []byte("OrderPlaced")},
				{Name: "source", Value: []byte("orders")},
				{Name: "a", Value: []byte("1")},
				{Name: "b"},
			}
		}},
		{name: "second pending value", values: map[string]any{"status": "NEW"}},
		{name: "other status", values: map[string]any{"status": "SENT"}, want: func(r *outbox.Row) { r.Pending = false }},
		{name: "NULL status", values: map[string]any{"status": nil}, want: func(r *outbox.Row) { r.Pending = false }},
		{name: "unreadable status is pending", values: map[string]any{"status": unchanged}, err: `column "status" was not sent (an unchanged TOASTed value)`},
		{name: "padded status", values: map[string]any{"status": "NEW      "}, columns: map[string]uint32{"status": oidBpchar}},
		{
			name: "boolean status", values: map[string]any{"status": "f"}, columns: map[string]uint32{"status": oidBool},
			mapping: func(m *outbox.Mapping) { m.Status.Pending = []string{"false"} },
		},

		{name: "blank cluster", values: map[string]any{"cluster": " "}},
		{name: "unknown cluster falls back", values: map[string]any{"cluster": "nowhere"}},
		{
			name: "unknown cluster fails", values: map[string]any{"cluster": "nowhere"},
			mapping: func(m *outbox.Mapping) { m.Cluster.Default = "" }, want: func(r *outbox.Row) { r.Cluster = "" },
			err: `column "cluster" names the Kafka cluster "nowhere", which is not configured, and there is no default`,
		},
		{
			name: "NULL cluster fails", mapping: func(m *outbox.Mapping) { m.Cluster.Default = "" },
			want: func(r *outbox.Row) { r.Cluster = "" },
			err:  `column "cluster" names no Kafka cluster, and there is no default`,
		},
		{name: "unsent cluster", values: map[string]any{"cluster": unchanged}, want: func(r *outbox.Row) { r.Cluster = "" }, err: `column "cluster" was not sent (an unchanged TOASTed value)`},

		{name: "NULL topic", values: map[string]any{"topic": nil}, want: func(r *outbox.Row) { r.Topic = "" }, err: `column "topic" is NULL, but names the topic`},
		{name: "empty topic", values: map[string]any{"topic": ""}, want: func(r *outbox.Row) { r.Topic = "" }, err: `column "topic" gives an empty topic name`},
		{name: "illegal topic is kept", values: map[string]any{"topic": "a/b"}, want: func(r *outbox.Row) { r.Topic = "a/b" }, err: `column "topic" gives the topic "a/b", which is no legal Kafka topic name`},
		{name: "dots", values: map[string]any{"topic": ".."}, want: func(r *outbox.Row) { r.Topic = ".." }, err: `column "topic" gives the topic "..", which is no legal Kafka topic name`},
		{name: "249 bytes", values: map[string]any{"topic": strings.Repeat("t", 249)}, want: func(r *outbox.Row) { r.Topic = strings.Repeat("t", 249) }},
		{name: "250 bytes", values: map[string]any{"topic": strings.Repeat("t", 250)}, want: func(r *outbox.Row) { r.Topic = strings.Repeat("t", 250) }, err: `column "topic" gives a topic name of 250 bytes, more than Kafka's 249`},
		{
			name: "template", mapping: func(m *outbox.Mapping) {
				m.Topic = outbox.Template{Literals: []string{"a.", ".", ".z"}, Columns: []outbox.Expr{{Column: "topic"}, {Column: "event_id"}}}
			}, want: func(r *outbox.Row) { r.Topic = "a.orders.7.z" },
		},
		{
			name: "NULL in a template", mapping: func(m *outbox.Mapping) {
				m.Topic = outbox.Template{Literals: []string{"a.", ""}, Columns: []outbox.Expr{{Column: "topic"}}}
			}, values: map[string]any{"topic": nil}, want: func(r *outbox.Row) { r.Topic = "a." }, err: `column "topic" is NULL, but names the topic`,
		},
		{
			name: "constant topic", mapping: func(m *outbox.Mapping) { m.Topic = outbox.Template{Literals: []string{"fixed"}} },
			want: func(r *outbox.Row) { r.Topic = "fixed" },
		},

		{name: "no key", mapping: func(m *outbox.Mapping) { m.Key = nil }, want: func(r *outbox.Row) { r.Key = nil }},
		{name: "NULL key", mapping: func(m *outbox.Mapping) { m.Key.Column = "type" }, want: func(r *outbox.Row) { r.Key = nil }},
		{
			name: "empty key", mapping: func(m *outbox.Mapping) { m.Key.Column = "type" }, values: map[string]any{"type": ""},
			want: func(r *outbox.Row) { r.Key, r.Headers[1].Value = []byte{}, []byte{} },
		},
		{
			name: "uuid key", mapping: func(m *outbox.Mapping) { m.Key.Encoding = outbox.EncodingUUID },
			want: func(r *outbox.Row) {
				r.Key = []byte{0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0x00}
			},
		},
		{
			name: "uuid key of no uuid", mapping: func(m *outbox.Mapping) { m.Key = &outbox.Expr{Column: "type", Encoding: outbox.EncodingUUID} },
			values: map[string]any{"type": "123"}, want: func(r *outbox.Row) { r.Key, r.Headers[1].Value = nil, []byte("123") },
			err: `column "type" is not a uuid like 123e4567-e89b-12d3-a456-426614174000`,
		},
		{name: "bytea key", mapping: func(m *outbox.Mapping) { m.Key.Column = "payload" }, want: func(r *outbox.Row) { r.Key = []byte{0, 0xff, 'a'} }},

		{name: "NULL payload", values: map[string]any{"payload": nil}, want: func(r *outbox.Row) { r.Value = nil }, err: `column "payload" is NULL, but holds the payload`},
		{name: "tombstone", values: map[string]any{"payload": nil}, mapping: func(m *outbox.Mapping) { m.Payload.Tombstone = true }, want: func(r *outbox.Row) { r.Value = nil }},
		{name: "empty payload", values: map[string]any{"payload": `\x`}, want: func(r *outbox.Row) { r.Value = []byte{} }},
		{name: "empty tombstone", values: map[string]any{"payload": `\x`}, mapping: func(m *outbox.Mapping) { m.Payload.EmptyTombstone = true }, want: func(r *outbox.Row) { r.Value = nil }},
		{name: "empty payload where only NULL is a tombstone", values: map[string]any{"payload": `\x`}, mapping: func(m *outbox.Mapping) { m.Payload.Tombstone = true }, want: func(r *outbox.Row) { r.Value = []byte{} }},
		{name: "escape bytea", values: map[string]any{"payload": `a\\b`}, want: func(r *outbox.Row) { r.Value = nil }, err: `column "payload" is not bytea in hex form (\x…): the session needs bytea_output = hex`},
		{name: "odd bytea", values: map[string]any{"payload": `\x123`}, want: func(r *outbox.Row) { r.Value = nil }, err: `column "payload" is bytea with an odd number of hex digits`},
		{name: "bad bytea", values: map[string]any{"payload": `\x1g`}, want: func(r *outbox.Row) { r.Value = nil }, err: `column "payload" is bytea with something that is not a hex digit`},
		{name: "binary bytea", values: map[string]any{"payload": bin(0, 0xff, 'a')}},
		{name: "jsonb payload", values: map[string]any{"payload": `{"a": 1}`}, columns: map[string]uint32{"payload": oidJSONB}, want: func(r *outbox.Row) { r.Value = []byte(`{"a": 1}`) }},
		{name: "binary jsonb payload", values: map[string]any{"payload": bin(1, '{', '}')}, columns: map[string]uint32{"payload": oidJSONB}, want: func(r *outbox.Row) { r.Value = []byte(`{}`) }},
		{name: "binary jsonb of another version", values: map[string]any{"payload": bin(2, '{', '}')}, columns: map[string]uint32{"payload": oidJSONB}, want: func(r *outbox.Row) { r.Value = nil }, err: `column "payload" is jsonb of a version other than 1`},
		{name: "binary numeric is not guessed", values: map[string]any{"payload": bin(0, 0)}, columns: map[string]uint32{"payload": 1700}, want: func(r *outbox.Row) { r.Value = nil }, err: `column "payload" is in binary form, which is not understood for its type`},
		{name: "text numeric", values: map[string]any{"payload": "1.50"}, columns: map[string]uint32{"payload": 1700}, want: func(r *outbox.Row) { r.Value = []byte("1.50") }},
		{name: "unsent payload", values: map[string]any{"payload": unchanged}, want: func(r *outbox.Row) { r.Value = nil }, err: `column "payload" was not sent (an unchanged TOASTed value)`},
		{name: "unknown format", values: map[string]any{"payload": Value{Format: 'x'}}, want: func(r *outbox.Row) { r.Value = nil }, err: `column "payload" came in the unknown format 'x'`},

		{name: "headers are no object", values: map[string]any{"headers": `["secret"]`}, err: `column "headers" is not a JSON object of strings: no object at byte 1`},
		{name: "nested header", values: map[string]any{"headers": `{"a": {"b": "secret"}}`}, err: `column "headers" is not a JSON object of strings: an object as a header's value at byte 7`},
		{name: "unsent headers", values: map[string]any{"headers": unchanged}, err: `column "headers" was not sent (an unchanged TOASTed value)`},
		{name: "unsent header", values: map[string]any{"type": unchanged}, err: `column "type" was not sent (an unchanged TOASTed value)`},

		{name: "negative partition", values: map[string]any{"partition": "-1"}, err: `column "partition" is not a partition number (0 to 2147483647)`},
		{name: "partition too large", values: map[string]any{"partition": "2147483648"}, columns: map[string]uint32{"partition": oidInt8}, err: `column "partition" is not a partition number (0 to 2147483647)`},
		{name: "partition of no number", values: map[string]any{"partition": "x"}, err: `column "partition" is not an integer`},
		{name: "binary partition", values: map[string]any{"partition": bin(0, 0, 1, 0)}, want: func(r *outbox.Row) { r.Partition = 256 }},
		{name: "short binary partition", values: map[string]any{"partition": bin(0, 1)}, err: `column "partition" has 2 bytes in binary form, not 4`},

		{name: "infinite timestamp", values: map[string]any{"at": "infinity"}, err: `column "at" is infinity, which a record's timestamp cannot be`},
		{name: "ancient timestamp", values: map[string]any{"at": "1969-12-31 23:59:59+00"}, err: `column "at" is not after 1970-01-01, which a record's timestamp must be`},
		{name: "timestamp that would mean now", values: map[string]any{"at": "1970-01-01 00:00:00+00"}, err: `column "at" is not after 1970-01-01, which a record's timestamp must be`},
		{name: "timestamp in another style", values: map[string]any{"at": "02/01/2026 03:04:05 UTC"}, err: `column "at" is not a timestamp in ISO form: the session needs DateStyle = ISO`},
		{name: "never due", values: map[string]any{"due": "infinity"}, want: func(r *outbox.Row) { r.AvailableAt = math.MaxInt64 }},
		{name: "due since ever", values: map[string]any{"due": "-infinity"}},
		{name: "due since long", values: map[string]any{"due": "0044-03-15 12:00:00 BC"}},
		{name: "unreadable due time", values: map[string]any{"due": "soon"}, err: `column "due" is not a timestamp in ISO form: the session needs DateStyle = ISO`},
		{name: "created_at only measures", values: map[string]any{"created_at": "infinity"}, want: func(r *outbox.Row) { r.CreatedAt = 0 }},

		{name: "NULL in the id", values: map[string]any{"event_id": nil}, want: func(r *outbox.Row) {
			r.ID = uuid1 + "\x00"
			r.Headers[0].Value = []byte(uuid1 + ":")
		}, err: `column "event_id" is NULL, but identifies the row or event`},
		{name: "the first fault wins", values: map[string]any{"topic": nil, "payload": nil}, want: func(r *outbox.Row) { r.Topic, r.Value = "", nil }, err: `column "topic" is NULL, but names the topic`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			table, cols := full()
			values := texts()
			for name, v := range test.values {
				values[name] = v
			}
			for i := range cols {
				if oid, ok := test.columns[cols[i].Name]; ok {
					cols[i].OID = oid
				}
			}
			if test.mapping != nil {
				test.mapping(&table.Mapping)
			}
			want := &outbox.Row{
				Table: table, ID: uuid1 + "\x007", Cluster: "main", Topic: "orders", Key: []byte(uuid1), Value: []byte{0, 0xff, 'a'},
				Headers: []outbox.Header{
					{Name: "id", Value: []byte(uuid1 + ":7")},
					{Name: "type"},
					{Name: "source", Value: []byte("orders")},
				},
				Partition: -1, CreatedAt: 1767323045678901, Pending: true,
			}
			if test.want != nil {
				test.want(want)
			}
			got := rowOf(t, table, cols, values)
			compareErr(t, got.Err, test.err)
			got.Err = nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// saysFirst reports whether the text begins with the problem. After it there may be what to do.
func saysFirst(text, problem string) bool {
	rest, ok := strings.CutPrefix(text, problem)
	return ok && (rest == "" || rest[0] == ':' || rest[0] == ';' || rest[0] == ' ')
}

func compareErr(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("unexpected error: %v", err)
		}
		return
	}
	var rowErr *RowError
	if !errors.As(err, &rowErr) || !saysFirst(err.Error(), want) {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

func TestPendingWithoutStatusColumn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		status       outbox.StatusMapping
		published    outbox.Published
		sent, failed any
		want         bool
	}{
		{"both NULL", outbox.StatusMapping{SentAt: "at", FailedAt: "created_at"}, outbox.PublishedStatus, nil, nil, true},
		{"sent", outbox.StatusMapping{SentAt: "at", FailedAt: "created_at"}, outbox.PublishedStatus, "2026-01-01 00:00:00+00", nil, false},
		{"failed", outbox.StatusMapping{SentAt: "at", FailedAt: "created_at"}, outbox.PublishedStatus, nil, "2026-01-01 00:00:00+00", false},
		{"only sent_at mapped", outbox.StatusMapping{SentAt: "at"}, outbox.PublishedStatus, nil, "2026-01-01 00:00:00+00", true},
		{"deleted on success", outbox.StatusMapping{}, outbox.PublishedDelete, "2026-01-01 00:00:00+00", nil, true},
		{"no state", outbox.StatusMapping{}, outbox.PublishedNone, nil, nil, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			table, cols := full()
			table.Mapping.Status, table.Mapping.Published = test.status, test.published
			values := texts()
			values["at"], values["created_at"] = test.sent, test.failed
			if got := rowOf(t, table, cols, values); got.Pending != test.want || got.Err != nil {
				t.Errorf("pending %v (%v), want %v", got.Pending, got.Err, test.want)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*outbox.Mapping, []Column)
		want   string
	}{
		{"missing column, near one named", func(m *outbox.Mapping, _ []Column) { m.Payload.Column = "paylod" }, `table public.outbox: column "paylod" does not exist, but is mapped as the payload: did you mean "payload"? there are unmapped, status, aggregate_id, event_id, cluster, topic, payload, trace, type, headers, partition, at, created_at, due, retries`},
		{"missing column, nothing near", func(m *outbox.Mapping, _ []Column) { m.Payload.Column = "zzzz" }, `column "zzzz" does not exist, but is mapped as the payload: map an existing column; there are unmapped, `},
		{"wrong case", func(m *outbox.Mapping, _ []Column) { m.Payload.Column = "Payload" }, `did you mean "payload"?`},
		{"topic of bytea", func(m *outbox.Mapping, _ []Column) { m.Topic.Columns[0].Column = "payload" }, `column "payload" (bytea) cannot be the topic: map a text column`},
		{"uuid key of bytea", func(m *outbox.Mapping, _ []Column) {
			m.Key = &outbox.Expr{Column: "payload", Encoding: outbox.EncodingUUID}
		}, `column "payload" (bytea) cannot be a record key with encoding uuid: map a uuid column, or set encoding: text`},
		{"headers of an integer", func(m *outbox.Mapping, _ []Column) { m.Headers[3].JSON = "retries" }, `column "retries" (integer) cannot be headers in JSON: map a jsonb, json, text or bytea column`},
		{"partition of text", func(_ *outbox.Mapping, c []Column) { c[10].OID = oidText }, `column "partition" (text) cannot be the partition: map a smallint, integer or bigint column`},
		{"time of a date", func(_ *outbox.Mapping, c []Column) { c[13].OID = 1082 }, `column "due" (date) cannot be a time: map a timestamptz or timestamp column`},
		{"status of an unknown type in binary only", func(_ *outbox.Mapping, c []Column) { c[1].OID = oidJSON }, `column "status" (json) cannot be the status`},
		{"partition of a type of its own", func(_ *outbox.Mapping, c []Column) { c[10].OID = 16444 }, `column "partition" (type with OID 16444) cannot be the partition`},
		{"id of json", func(_ *outbox.Mapping, c []Column) { c[3].OID = oidJSON }, `column "event_id" (json) cannot be part of the row's id`},
		{"every fault is named", func(m *outbox.Mapping, c []Column) { m.Payload.Column = "x"; c[10].OID = oidText }, `column "x" does not exist, but is mapped as the payload: `},
		{"no id", func(m *outbox.Mapping, _ []Column) { m.ID = nil }, "the mapping has no id columns: name the columns of the primary key"},
		{"empty id column", func(m *outbox.Mapping, _ []Column) { m.ID = []string{""} }, "the mapping has an empty column name as part of the row's id: name a column"},
		{"no topic", func(m *outbox.Mapping, _ []Column) { m.Topic = outbox.Template{} }, "the mapping has no topic: name a topic, a column or a template"},
		{"illegal topic", func(m *outbox.Mapping, _ []Column) { m.Topic = outbox.Template{Literals: []string{"a b"}} }, `the mapping has the topic "a b", which is not legal in Kafka: use`},
		{"no payload", func(m *outbox.Mapping, _ []Column) { m.Payload.Column = "" }, "the mapping has no payload: name the payload's column"},
		{"key without column", func(m *outbox.Mapping, _ []Column) { m.Key.Column = "" }, "the mapping has a key without a column"},
		{"unknown encoding", func(m *outbox.Mapping, _ []Column) { m.Key.Encoding = "hex" }, `the mapping has the key encoding "hex": use text, uuid, int64 or rfc3339`},
		{"header without name", func(m *outbox.Mapping, _ []Column) { m.Headers[0].Name = "" }, "the mapping has a header that is none of"},
		{"header of two sources", func(m *outbox.Mapping, _ []Column) { m.Headers[0].JSON = "headers" }, "the mapping has a header that is none of"},
		{"every fault is parted from the next", func(m *outbox.Mapping, _ []Column) { m.ID, m.Topic = nil, outbox.Template{} }, "name the columns of the primary key; the mapping has no topic"},
		{"places of several kinds", func(m *outbox.Mapping, _ []Column) {
			m.Key = &outbox.Expr{Column: "topic", Or: []outbox.Expr{{Column: "payload"}}}
		}, `column "payload" (bytea) cannot be the record key: map a text, uuid or integer column`},
		{"a path in an integer", func(m *outbox.Mapping, _ []Column) {
			m.Topic.Columns[0] = outbox.Expr{Column: "retries", Pointer: []string{"a"}}
		}, `column "retries" (integer) cannot be JSON that holds the topic: map a json, jsonb, text or bytea column`},
		{"properties in jsonb", func(m *outbox.Mapping, _ []Column) { m.Headers[3].Form = &outbox.JSONHeaders{Properties: true} }, `column "headers" (jsonb) cannot be properties of Java: map a text or bytea column`},
		{"trace without id", func(m *outbox.Mapping, _ []Column) {
			m.Headers[0] = outbox.HeaderMapping{Name: "b3", Trace: &outbox.TraceMapping{SpanID: "event_id", Format: outbox.TraceB3}}
		}, "the mapping has a trace header without a trace id or a span id"},
		{"trace without span", func(m *outbox.Mapping, _ []Column) {
			m.Headers[0] = outbox.HeaderMapping{Name: "b3", Trace: &outbox.TraceMapping{TraceID: "event_id", Format: outbox.TraceB3}}
		}, "the mapping has a trace header without a trace id or a span id"},
		{"trace of another format", func(m *outbox.Mapping, _ []Column) {
			m.Headers[0] = outbox.HeaderMapping{Name: "b3", Trace: &outbox.TraceMapping{TraceID: "event_id", SpanID: "event_id", Format: "jaeger"}}
		}, `the mapping has the trace format "jaeger": use w3c or b3`},
		{"writer without time", func(m *outbox.Mapping, c []Column) { m.Writer.Column = "status"; c[1].OID = oidBool }, "the mapping has rows of the writer, but only one of column and until"},
		{"writer without flag", func(m *outbox.Mapping, _ []Column) { m.Writer.Until = "due" }, "the mapping has rows of the writer, but only one of column and until"},
		{"event id without columns", func(m *outbox.Mapping, _ []Column) { m.EventID.Columns = nil }, "the mapping has an event id header without columns"},
		{"no cluster", func(m *outbox.Mapping, _ []Column) { m.Cluster = outbox.ClusterMapping{} }, "the mapping leads to no Kafka cluster"},
		{"status without values", func(m *outbox.Mapping, _ []Column) { m.Status.Pending = nil }, "the mapping has a status column but no value that means pending"},
		{"no state", func(m *outbox.Mapping, _ []Column) { m.Status = outbox.StatusMapping{} }, "the mapping says nowhere which rows are pending"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			table, cols := full()
			test.change(&table.Mapping, cols)
			plan, err := Compile(nil, table, cols)
			var typed *Error
			if plan != nil || !errors.As(err, &typed) || typed.Table != table || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v\nwant  %s", err, test.want)
			}
		})
	}
}

// A header needs exactly one source.
func TestHeadersThatAreNone(t *testing.T) {
	t.Parallel()
	trace := &outbox.TraceMapping{TraceID: "event_id", SpanID: "event_id", Format: outbox.TraceB3}
	for _, h := range []outbox.HeaderMapping{
		{},
		{Value: "v"},
		{Column: "type"},
		{Trace: trace},
		{Trace: trace, Name: "n", Column: "type"},
		{Trace: trace, Name: "n", Value: "v"},
		{Trace: trace, Name: "n", JSON: "headers"},
		{JSON: "headers", Column: "type"},
		{JSON: "headers", Value: "v"},
		{JSON: "headers", Name: "n"},
		{Name: "n", Column: "type", JSON: "headers"},
		{Name: "n", Column: "type", Value: "v"},
		{Name: "n", Value: "v", JSON: "headers"},
	} {
		table, cols := full()
		table.Mapping.Headers = []outbox.HeaderMapping{h}
		if _, err := Compile(nil, table, cols); err == nil || !strings.HasPrefix(err.Error(), "table public.outbox: the mapping has a header that is none of") {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

func TestColumnsThatErrorsList(t *testing.T) {
	t.Parallel()
	table, _ := full()
	for n, want := range map[int]string{0: "there are no columns", maxListed: "x, x", maxListed + 1: "x, …"} {
		cols := slices.Repeat([]Column{{Name: "x", OID: oidText}}, n)
		_, err := Compile(nil, table, cols)
		var typed *Error
		if !errors.As(err, &typed) || !strings.HasSuffix(typed.Faults[0].Hint, want) {
			t.Errorf("%d columns: %v", n, err)
		}
	}
}

func TestCompileNamesEveryFaultOnce(t *testing.T) {
	t.Parallel()
	table, cols := full()
	_, err := Compile(nil, table, append(cols[:3:3], cols[4:10]...)) // event_id, partition, at, created_at, due are gone
	var typed *Error
	if !errors.As(err, &typed) || len(typed.Faults) != 5 {
		t.Fatalf("want five faults: %v", err)
	}
}

func TestVerifyLooksAtWrittenColumns(t *testing.T) {
	t.Parallel()
	table, cols := full()
	table.Mapping.Status.Attempts = "retries"
	table.Mapping.Status.LastError = "last_error"
	table.Mapping.Status.Version = "topic"
	table.Mapping.Status.SentAt = "created_at"
	table.Mapping.Order = []string{"created_at", "headers"}
	if _, err := Compile(nil, table, cols); err != nil {
		t.Errorf("columns that are only written concern no reader: %v", err)
	}
	err := Verify(table, cols)
	var typed *Error
	if !errors.As(err, &typed) || len(typed.Faults) != 3 {
		t.Fatalf("want faults of last_error, topic and headers: %v", err)
	}
	table.Mapping.Status.LastError, table.Mapping.Status.Version, table.Mapping.Order = "", "", nil
	if err := Verify(table, cols); err != nil {
		t.Error(err)
	}
	s := &table.Mapping.Status
	for _, column := range []*string{&s.SentAt, &s.FailedAt, &s.Attempts, &s.MaxAttemptsColumn, &s.TouchedAt, &s.ExpiresAt, &table.Mapping.Partition} {
		was := *column
		if *column = "headers"; Verify(table, cols) == nil {
			t.Error("a column of JSON is taken for a time or a number")
		}
		*column = was
	}
}

func TestWantedIsAscendingAndOnlyWhatIsRead(t *testing.T) {
	t.Parallel()
	table, cols := full()
	plan, err := Compile(nil, table, cols)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}; !reflect.DeepEqual(plan.Wanted(), want) {
		t.Errorf("wanted %v, want %v", plan.Wanted(), want)
	}
}

func TestRowErrorRepeatsNoContent(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	table, cols := full()
	for _, column := range []string{"payload", "headers", "at", "due", "partition"} {
		values := texts()
		values[column] = `{"` + secret + `": ["` + secret + `"]}`
		err := rowOf(t, table, cols, values).Err
		if err == nil || strings.Contains(err.Error(), secret) || len(err.Error()) > 200 {
			t.Errorf("%s: %v", column, err)
		}
	}
}

// The input's memory is the connection's and is overwritten by the next read.
func TestRowKeepsNothingOfItsInput(t *testing.T) {
	t.Parallel()
	table, cols := full()
	plan, err := Compile(nil, table, cols)
	if err != nil {
		t.Fatal(err)
	}
	values := texts()
	values["cluster"], values["trace"], values["type"], values["headers"] = "side", "t", "u", `{"name": "value", "es\u0063aped": "v\n"}`
	given := func(buffer []byte) []Value {
		list := make([]Value, 0, len(plan.Wanted()))
		for _, i := range plan.Wanted() {
			text, ok := values[cols[i].Name].(string)
			if !ok {
				list = append(list, Value{Format: Null})
				continue
			}
			start := len(buffer)
			buffer = append(buffer, text...)
			list = append(list, Value{Data: buffer[start:], Format: Text})
		}
		return list
	}
	buffer := make([]byte, 0, 1<<12)
	row := plan.Row(given(buffer), new(Arena))
	clear(buffer[:cap(buffer)])
	want := plan.Row(given(make([]byte, 0, 1<<12)), new(Arena))
	if !reflect.DeepEqual(row, want) {
		t.Errorf("got  %+v\nwant %+v", row, want)
	}
}

func TestLegalTopic(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"": false, ".": false, "..": false, "...": true, "a": true, "A_b-c.0": true, "a b": false, "a/b": false, "ä": false,
		"a\x00": false, "a:b": false, strings.Repeat("x", 249): true, strings.Repeat("x", 250): false,
	} {
		if got := LegalTopic(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// For a row's own budget, NULL stands for the mapping's budget, and each row is tried at least once. A row is
// due when all its times have passed.
func TestBudgetAndTimesOfTheRowItself(t *testing.T) {
	t.Parallel()
	table, cols := full()
	table.Mapping.Status = outbox.StatusMapping{SentAt: "at", Attempts: "retries", MaxAttempts: 3, MaxAttemptsColumn: "partition"}
	table.Mapping.Partition, table.Mapping.Timestamp = "", ""
	table.Mapping.AvailableAfter = []string{"due", "created_at"}
	for _, test := range []struct {
		attempts, budget any
		pending          bool
	}{{"2", nil, true}, {"3", nil, false}, {nil, "0", true}, {"0", "-5", true}, {"1", "0", false}, {"4", "5", true}, {"5", "5", false}} {
		v := texts()
		v["retries"], v["partition"], v["due"] = test.attempts, test.budget, "1970-01-01 00:00:01"
		r := rowOf(t, table, cols, v)
		if r.Pending != test.pending || r.Err != nil || r.AvailableAt != r.CreatedAt {
			t.Errorf("%v of %v attempts: pending %t, %v, due %d", test.attempts, test.budget, r.Pending, r.Err, r.AvailableAt)
		}
	}
	for _, column := range []string{"partition", "retries", "at"} {
		v := texts()
		v[column] = Value{Format: Unchanged}
		if r := rowOf(t, table, cols, v); r.Err == nil || !r.Pending {
			t.Errorf("%s: %v", column, r)
		}
	}
}
