package mapping

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A local time is read as PostgreSQL's AT TIME ZONE reads it: in both hours of a transition, where a zone
// changes its offset permanently or skips a day, and at every other time.
func TestLocalTimesAreTheServers(t *testing.T) {
	conn := harness.Postgres(t).Conn(t)
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Europe/Moscow", "Pacific/Apia", "Asia/Kolkata", "UTC"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		var locals []string
		var want []int64
		add := func(local time.Time) {
			locals = append(locals, local.Format("2006-01-02 15:04:05.000000"))
			want = append(want, utc(local.UnixMicro(), zone))
		}
		at := time.Date(1995, 1, 1, 0, 0, 0, 0, time.UTC)
		for at.Year() < 2045 {
			_, change := at.In(zone).ZoneBounds()
			if change.IsZero() {
				break
			}
			for minutes := -130; minutes <= 130; minutes += 5 { // around what clocks show before and after
				_, offset := change.Zone()
				add(change.UTC().Add(time.Duration(offset)*time.Second + time.Duration(minutes)*time.Minute))
			}
			if at = at.AddDate(0, 0, 1); at.Before(change) { // which may be the end of a year that has begun
				at = change.Add(time.Hour)
			}
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			add(time.UnixMicro(r.Int64N(4e15) - 5e14).UTC())
		}
		rows, err := conn.Query(t.Context(), fmt.Sprintf("SELECT (extract(epoch FROM t::timestamp AT TIME ZONE '%s') * 1000000)::bigint FROM unnest($1::text[]) WITH ORDINALITY AS u(t, n) ORDER BY n", name), locals)
		if err != nil {
			t.Fatal(err)
		}
		n, wrong := 0, 0
		for ; rows.Next(); n++ {
			var theirs int64
			if err := rows.Scan(&theirs); err != nil {
				t.Fatal(err)
			}
			if theirs != want[n] {
				if wrong++; wrong < 5 {
					t.Errorf("%s %s is %s to us, %s to the server", name, locals[n], time.UnixMicro(want[n]).UTC(), time.UnixMicro(theirs).UTC())
				}
			}
		}
		if n != len(locals) || n < 500 {
			t.Error(name, n, len(locals), rows.Err())
		}
	}
}

// Text and binary forms agree. A value that is not a local time is unchanged.
func TestTimesOfZonesAndEpochs(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	type want struct {
		value      string
		unit       time.Duration
		oid        uint32
		instant    string // in UTC; empty: infinity
		created    string // as the column has it
		unreadable string
	}
	for _, w := range []want{
		{value: "2026-07-01 12:00:00.5", oid: oidTimestamp, instant: "2026-07-01T10:00:00.5Z", created: "2026-07-01T12:00:00.5Z"},
		{value: "2026-03-29 02:30:00", oid: oidTimestamp, instant: "2026-03-29T01:30:00Z", created: "2026-03-29T02:30:00Z"}, // skipped
		{value: "2026-10-25 02:30:00", oid: oidTimestamp, instant: "2026-10-25T01:30:00Z", created: "2026-10-25T02:30:00Z"}, // shown twice
		{value: "2026-07-01 12:00:00+00", oid: oidTimestamptz, instant: "2026-07-01T12:00:00Z", created: "2026-07-01T12:00:00Z"},
		{value: "10000-01-01 00:00:00", oid: oidTimestamp, instant: "10000-01-01T00:00:00Z", created: "10000-01-01T00:00:00Z"},
		{value: "infinity", oid: oidTimestamp},
		{value: "1782900000", unit: time.Second, oid: oidInt8, instant: "2026-07-01T10:00:00Z", created: "2026-07-01T10:00:00Z"},
		{value: "1782900000", unit: time.Second, oid: oidInt4, instant: "2026-07-01T10:00:00Z", created: "2026-07-01T10:00:00Z"},
		{value: "1782900000123", unit: time.Millisecond, oid: oidInt8, instant: "2026-07-01T10:00:00.123Z", created: "2026-07-01T10:00:00.123Z"},
		{value: "1782900000123456", unit: time.Microsecond, oid: oidInt8, instant: "2026-07-01T10:00:00.123456Z", created: "2026-07-01T10:00:00.123456Z"},
		{value: "1782900000123456", unit: time.Second, oid: oidInt8},
		{value: "1782900000.1234569", unit: time.Second, oid: oidNumeric, instant: "2026-07-01T10:00:00.123456Z", created: "2026-07-01T10:00:00.123456Z"},
		{value: "1782900000123.5", unit: time.Millisecond, oid: oidNumeric, instant: "2026-07-01T10:00:00.1235Z", created: "2026-07-01T10:00:00.1235Z"},
		{value: "1782900000", unit: time.Second, oid: oidNumeric, instant: "2026-07-01T10:00:00Z", created: "2026-07-01T10:00:00Z"},
		{value: "1" + strings.Repeat("0", 40), unit: time.Second, oid: oidNumeric},
		{value: "NaN", unit: time.Second, oid: oidNumeric},
		{value: "Infinity", unit: time.Microsecond, oid: oidNumeric},
		{value: "x", unit: time.Second, oid: oidNumeric, unreadable: "is not a number"},
	} {
		table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
			ID: []string{"id"}, Topic: outbox.Template{Literals: []string{"t"}}, Cluster: outbox.ClusterMapping{Default: "main"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}},
			CreatedAt: "at", AvailableAfter: []string{"at"}, Headers: []outbox.HeaderMapping{{Name: "at", Column: "at", Encoding: outbox.EncodingRFC3339}},
			Published: outbox.PublishedNone, Zone: berlin, Epoch: w.unit,
		}}
		plan, err := Compile(nil, table, []Column{{Name: "id", OID: oidInt8}, {Name: "at", OID: w.oid}})
		if err != nil {
			t.Fatal(w.value, err)
		}
		row := plan.Row([]Value{{Format: Text, Data: []byte("1")}, {Format: Text, Data: []byte(w.value)}}, new(Arena))
		if w.instant == "" {
			if row.AvailableAt != infinity && w.unreadable == "" || row.CreatedAt != 0 || row.Err == nil || !strings.Contains(row.Err.Error(), w.unreadable) {
				t.Errorf("%s: due %d, created %d, %v", w.value, row.AvailableAt, row.CreatedAt, row.Err)
			}
			continue
		}
		instant, _ := time.Parse(time.RFC3339Nano, w.instant)
		created, _ := time.Parse(time.RFC3339Nano, w.created)
		if strings.HasPrefix(w.instant, "10000") {
			instant = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
			created = instant
		} else if string(row.Headers[0].Value) != w.instant || row.Err != nil {
			t.Errorf("%s: header %s, %v", w.value, row.Headers[0].Value, row.Err)
		}
		if row.AvailableAt != instant.UnixMicro() || row.Made() != instant.UnixMicro() || row.CreatedAt != created.UnixMicro() {
			t.Errorf("%s: due %s, made %s, created %s", w.value, time.UnixMicro(row.AvailableAt).UTC(), time.UnixMicro(row.Made()).UTC(), time.UnixMicro(row.CreatedAt).UTC())
		}
	}
}

// A column that is no time without epoch is refused by name. So is a key that would depend on the rules of a
// time zone.
func TestColumnsThatAreNoTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	m := outbox.Mapping{
		ID: []string{"id"}, Topic: outbox.Template{Literals: []string{"t"}}, Cluster: outbox.ClusterMapping{Default: "main"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}},
		CreatedAt: "at", Published: outbox.PublishedNone,
	}
	columns := []Column{{Name: "id", OID: oidInt8}, {Name: "at", OID: oidInt8}, {Name: "local", OID: oidTimestamp}}
	_, err = Compile(nil, &outbox.Table{Name: "outbox", Mapping: m}, columns)
	if err == nil || !strings.Contains(err.Error(), "epoch: s, ms or us") {
		t.Error(err)
	}
	m.Epoch, m.Zone, m.Key = time.Millisecond, berlin, &outbox.Expr{Column: "local", Encoding: outbox.EncodingRFC3339}
	_, err = Compile(nil, &outbox.Table{Name: "outbox", Mapping: m}, columns)
	if err == nil || !strings.Contains(err.Error(), "while time_zone is set") {
		t.Error(err)
	}
	m.Key.Column = "at"
	if _, err = Compile(nil, &outbox.Table{Name: "outbox", Mapping: m}, columns); err == nil || !strings.Contains(err.Error(), "cannot be a record key") {
		t.Error(err)
	}
}
