package page

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The records of pending rows are for operators; of failed ones for all who see the
// list. Whatever a row has in it is text.
func TestPreview(t *testing.T) {
	may := true
	o := newOffice(t, func(cfg *Config) {
		cfg.MayAct = func(*http.Request) bool { return may }
	})
	o.db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, status, topic, payload_bytes, retries, created_at) VALUES
		('`+seven+`5', '`+seven+`5', 'PENDING', $1::text, convert_to($1::text || repeat('ä', 4000), 'UTF8'), 0, '2026-01-01 10:00Z'),
		('`+seven+`5', '`+seven+`6', 'PENDING', 'orders', '{"total": 12}', 0, '2026-01-01 10:01Z')`, hostile)
	body := get(o, "/preview").Body.String()
	for _, want := range []string{"first PENDING rows", "No record:", "no legal Kafka topic name", "<code>orders</code>", "&#34;total&#34;: 12", "the first 4 KiB are shown", "13 bytes, as json"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	harmless(t, "preview", body)
	var list preview
	asked := func(query string, code int) string {
		t.Helper()
		w := get(o, "/api/v1/preview?"+query)
		text := w.Body.String()
		list = preview{}
		if w.Code != code || json.Unmarshal([]byte(text), &list) != nil {
			t.Fatalf("%s: %d %s", query, w.Code, text)
		}
		conforms(t, "/api/v1/preview", w)
		return text
	}
	asked("", 200)
	if len(list.Records) != 2 || list.State != "PENDING" || list.Records[0].Error == "" || *list.Records[1].Value.Text != `{"total": 12}` {
		t.Errorf("%+v", list)
	}
	asked("limit=1", 200)
	if len(list.Records) != 1 {
		t.Errorf("%+v", list)
	}
	sent := "id=" + url.QueryEscape(idOf("2"))
	if asked(sent, 200); len(list.Records) != 1 || list.Records[0].Pending {
		t.Errorf("%+v", list)
	}
	if asked("state=failed", 200); len(list.Records) != 3 || list.State != "FAILED" {
		t.Errorf("%+v", list)
	}
	may = false
	asked("state=pending", 403)
	if asked("", 200); list.State != "FAILED" || len(list.Records) != 3 {
		t.Errorf("%+v", list)
	}
	if asked(sent, 200); len(list.Records) != 0 {
		t.Errorf("a viewer sees a row that is not FAILED: %+v", list)
	}
	o.cfg.ShowPayloads = false
	if text := asked("", 200); !list.Hidden || list.Records[0].Value.Length != 8 || strings.Contains(text, `a\": 1`) {
		t.Errorf("payloads are shown: %s", text)
	}
	if body := get(o, "/preview").Body.String(); !strings.Contains(body, "Values are not shown") || strings.Contains(body, "<pre") {
		t.Error(body)
	}
	asked("state=sent", 400)
	asked("id=7", 400)
}
