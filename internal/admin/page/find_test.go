package page

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
)

// A row is found by its id or its key, in whatever state it is; those who may not act see FAILED rows only.
func TestRowsAreFound(t *testing.T) {
	may := true
	o := newOffice(t, func(cfg *Config) {
		cfg.MayAct = func(*http.Request) bool { return may }
		cfg.Streams[0].Parks = func(context.Context, *pgx.Conn) ([]outbox.Park, error) {
			return []outbox.Park{
				{Scope: outbox.TopicScope("main", "other"), Reason: "another's"},
				{Scope: outbox.TopicScope("main", "orders"), Reason: hostile, Since: noon.Add(-time.Hour)},
				{Scope: outbox.StreamScope(), Cause: outbox.CausePaused, Reason: "paused by ann", Since: noon},
			}, nil
		}
	})
	o.mustSay(get(o, "/rows"), 200, "One row by its id", `name="id"`)
	key := "key=" + seven + "1"
	if body := get(o, "/rows?"+key).Body.String(); strings.Index(body, idText("2")) > strings.Index(body, idText("1")) || !strings.Contains(body, "no row of it is PENDING") {
		t.Errorf("not the newest first: %s", body)
	}
	o.db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, status, topic, payload_bytes, retries, created_at) VALUES
		('`+seven+`1', '`+seven+`5', 'PENDING', 'orders', '{}', 0, '2026-01-01 10:00Z')`)
	o.mustSay(get(o, "/rows?"+key), 200, "What holds up key", idText("5"), "2030-01-01 11:00:00", "&lt;script&gt;alert(1)", ">when resumed<", "3 rows")
	o.mustSay(get(o, "/rows?state=sent"), 200, "SENT", "Replay …")
	conforms(t, "/api/v1/rows", get(o, "/api/v1/rows?"+key))
	conforms(t, "/api/v1/rows", get(o, "/api/v1/rows?state=none"))
	row := get(o, "/rows?id="+seven+"1,"+seven+"5").Header().Get("Location")
	o.mustSay(get(o, row), 200, "What it waits for", "topic orders on cluster main", "All rows of its key")
	conforms(t, "/api/v1/failed/row", get(o, "/api/v1"+row))
	o.mustSay(get(o, "/rows?id=x"), 303)
	o.mustSay(get(o, get(o, "/rows?id=x").Header().Get("Location")), 400, "an id needs a value for each of the columns aggregate_id, event_id", `name="id" value="x"`, `aria-describedby="hint-id problem"`)
	may = false
	o.mustSay(get(o, row), 404, "shown to operators only")
	o.mustSay(get(o, "/rows?state=any"), 403, "only an operator")
	if body := get(o, "/rows?"+key).Body.String(); strings.Contains(body, idText("5")) || strings.Contains(body, idText("2")) || !strings.Contains(body, idText("1")) {
		t.Errorf("a viewer sees other rows than FAILED ones: %s", body)
	}
	var l listed
	if err := json.Unmarshal(get(o, "/api/v1/rows?"+key).Body.Bytes(), &l); err != nil || l.State != "FAILED" || len(l.Rows) != 1 || l.First != nil {
		t.Errorf("%v %+v", err, l)
	}
}

func idText(event string) string { return url.QueryEscape(idOf(event)) }

// SENT rows are replayed as FAILED ones are requeued: shown first, confirmed, logged.
func TestReplayIsConfirmed(t *testing.T) {
	o := newOffice(t, nil)
	f := o.form("replay", "1", "2")
	o.mustSay(o.send(f), 200, "1 SENT row of", "the same event ids again", "Yes, replay 1 row")
	if o.state("2") != "SENT" {
		t.Error("something was done without a confirmation")
	}
	f.Set("confirmed", "yes")
	o.mustSay(o.send(f), 200, "1 row of public.outbox: replay", "within about 15s", "/rows?state=sent")
	if o.state("2") != "PENDING" || o.state("1") != "FAILED" || !strings.Contains(o.log.String(), `"verb":"replay"`) {
		t.Errorf("not what was asked for: %s", o.log)
	}
}

func TestWhatARowWaitsFor(t *testing.T) {
	table := fixture.Im2be().Table
	row := &outbox.Row{Table: table, ID: "7", Cluster: "main", Topic: "orders", Key: []byte{1}, Pending: true, AvailableAt: noon.Add(time.Minute).UnixMicro()}
	since := noon.Add(-time.Hour)
	parks := []outbox.Park{
		{Scope: outbox.KeyScope(row), Cause: outbox.CauseBlocked, Reason: "refused", Since: since, RowID: outbox.JoinID("1", "2")},
		{Scope: outbox.RowScope(&outbox.Row{Table: table, ID: "8"}), Reason: "another row's"},
		{Scope: outbox.Scope{Kind: outbox.ScopeTopics, Table: table.String()}, Reason: "its unknown topics"},
		{Scope: outbox.TableScope(table), Reason: "a column is missing", Next: noon},
		{Scope: outbox.RowScope(row), Cause: outbox.CauseWriteBack, Reason: "permission denied", RowID: "x"},
	}
	s := &status.Stream{Kafka: []status.Cluster{{Name: "main", Error: "refused"}, {Name: "other"}}}
	want := []waiting{
		{What: "table public.outbox", Reason: "a column is missing", Next: noon},
		{What: parks[0].Scope.String(), Reason: "refused", Since: since, Row: []string{"1", "2"}},
		{What: parks[4].Scope.String(), Reason: "published, cannot be marked: permission denied"},
		{What: "Kafka cluster main", Reason: "it cannot be used: refused"},
		{What: "its own time", Reason: "it may not be published before", Next: noon.Add(time.Minute)},
	}
	if got := waitsFor(row, parks, s, noon); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	row.AvailableAt = outbox.Never
	if got := waitsFor(row, parks[2:3], &status.Stream{}, noon); len(got) != 2 || got[0].Reason != "its unknown topics" || got[1].What != "its writer" {
		t.Errorf("%+v", got)
	}
	if row.AvailableAt = 0; len(waitsFor(row, nil, &status.Stream{}, noon)) != 0 {
		t.Error("nothing keeps it")
	}
}
