package page

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/slots"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// described are the types with a schema in openapi.yaml, by its name.
var described = map[string]reflect.Type{
	"Problem": reflect.TypeFor[problem](), "Report": reflect.TypeFor[status.Report](), "Stream": reflect.TypeFor[status.Stream](),
	"Leader": reflect.TypeFor[status.Leader](), "Standby": reflect.TypeFor[status.Standby](), "Slot": reflect.TypeFor[status.Slot](), "Loss": reflect.TypeFor[status.Loss](),
	"Table": reflect.TypeFor[status.Table](), "Parks": reflect.TypeFor[status.Parks](), "ParkGroup": reflect.TypeFor[status.ParkGroup](),
	"Cluster": reflect.TypeFor[status.Cluster](), "Limit": reflect.TypeFor[status.Limit](), "Flow": reflect.TypeFor[status.Flow](), "StreamDetail": reflect.TypeFor[StreamDetail](),
	"Tally": reflect.TypeFor[status.Tally](), "Transactions": reflect.TypeFor[status.Transactions](), "Abort": reflect.TypeFor[status.Abort](),
	"Finding": reflect.TypeFor[status.Finding](), "Attention": reflect.TypeFor[attention](), "Activity": reflect.TypeFor[status.Activity](), "Park": reflect.TypeFor[status.Park](),
	"ErrorGroup": reflect.TypeFor[status.ErrorGroup](), "Event": reflect.TypeFor[status.Event](), "Point": reflect.TypeFor[status.Point](),
	"Rates": reflect.TypeFor[status.Rates](), "Topic": reflect.TypeFor[status.Topic](), "Positions": reflect.TypeFor[status.Positions](),
	"FailedRows": reflect.TypeFor[listed](), "First": reflect.TypeFor[first](), "Waiting": reflect.TypeFor[waiting](), "Count": reflect.TypeFor[operator.Count](), "Row": reflect.TypeFor[operator.Row](),
	"Preview": reflect.TypeFor[preview](), "Record": reflect.TypeFor[operator.Record](), "RecordHeader": reflect.TypeFor[operator.RecordHeader](), "Bytes": reflect.TypeFor[operator.Bytes](),
	"RowDetail": reflect.TypeFor[RowDetail](), "ServerList": reflect.TypeFor[ServerList](), "Server": reflect.TypeFor[Server](),
	"ReplicationSlot": reflect.TypeFor[slots.Slot](), "Client": reflect.TypeFor[slots.Client](),
}

type description struct {
	Paths      map[string]map[string]any
	Components struct {
		Schemas map[string]struct {
			Required   []string
			Properties map[string]any
		}
	}
}

func readDescription(t *testing.T) (description, any) {
	t.Helper()
	text, err := files.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d description
	var raw any
	for _, to := range []any{&d, &raw} {
		if err := yaml.Unmarshal(text, to); err != nil {
			t.Fatal(err)
		}
	}
	return d, raw
}

// jsonFields are the names of a type's fields, and of those always there.
func jsonFields(of reflect.Type) (all, required []string) {
	for f := range of.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && tag == "":
			more, needed := jsonFields(f.Type)
			all, required = append(all, more...), append(required, needed...)
		case !f.IsExported() || name == "-":
		default:
			all = append(all, name)
			if !strings.Contains(options, "omit") {
				required = append(required, name)
			}
		}
	}
	return all, required
}

func TestDescriptionFitsTheTypes(t *testing.T) {
	d, _ := readDescription(t)
	for name, of := range described {
		all, required := jsonFields(of)
		schema := d.Components.Schemas[name]
		for what, pair := range map[string][2][]string{
			"fields":   {slices.Sorted(slices.Values(all)), slices.Sorted(maps.Keys(schema.Properties))},
			"required": {slices.Sorted(slices.Values(required)), slices.Sorted(slices.Values(schema.Required))},
		} {
			if !slices.Equal(pair[0], pair[1]) {
				t.Errorf("schema %s, %s: %v, the program has %v", name, what, pair[1], pair[0])
			}
		}
	}
	for name := range d.Components.Schemas {
		if described[name] == nil {
			t.Errorf("schema %s describes no type", name)
		}
	}
}

func TestDescriptionHasEveryPath(t *testing.T) {
	d, _ := readDescription(t)
	want := []string{"/api/v1/status"} // package admin's
	for pattern := range page(t, config()).routes() {
		if path, ok := strings.CutPrefix(pattern, "GET "); ok && strings.HasPrefix(path, "/api/") {
			want = append(want, path)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(d.Paths)); !slices.Equal(got, want) {
		t.Errorf("openapi.yaml has %v, the program %v", got, want)
	}
}

// conforms checks an answer against the schema of its path.
func conforms(t *testing.T, path string, w *httptest.ResponseRecorder) {
	t.Helper()
	_, raw := readDescription(t)
	c := validator.NewCompiler()
	c.AssertFormat()
	text, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	document, err := validator.UnmarshalJSON(strings.NewReader(string(text)))
	if err == nil {
		err = c.AddResource("openapi.json", document)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := "default"
	at := "/components/responses/Problem"
	if w.Code == http.StatusOK {
		name = "200"
		at = "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/get/responses/200"
	}
	schema, err := c.Compile("openapi.json#" + at + "/content/application~1json/schema")
	if err != nil {
		t.Fatalf("%s %s: %v", path, name, err)
	}
	body, err := validator.UnmarshalJSON(w.Body)
	if err == nil {
		err = schema.Validate(body)
	}
	if err != nil {
		t.Errorf("%s, %d: %v", path, w.Code, err)
	}
}

func TestAnswersFitTheDescription(t *testing.T) {
	cfg := config()
	cfg.Slots = slotsOf([]Server{{Server: "db:5432", Slots: []slots.Slot{{Name: "x", Type: "logical", Whose: slots.Other, Client: &slots.Client{PID: 1}}}}}, nil)
	p := page(t, cfg)
	for _, c := range []struct {
		path, query string
		code        int
	}{
		{"/api/v1/streams/{stream}", "/api/v1/streams/orders", 200},
		{"/api/v1/streams/{stream}", "/api/v1/streams/none", 404},
		{"/api/v1/slots", "/api/v1/slots", 200},
		{"/api/v1/failed", "/api/v1/failed?limit=0", 400},
		{"/api/v1/failed", "/api/v1/failed?table=none", 404},
		{"/api/v1/failed/row", "/api/v1/failed/row?table=none", 404},
		{"/api/v1/preview", "/api/v1/preview?limit=101", 400},
		{"/api/v1/preview", "/api/v1/preview?table=none", 404},
	} {
		w := get(p, c.query)
		if w.Code != c.code {
			t.Errorf("%s: %d, want %d", c.query, w.Code, c.code)
		}
		conforms(t, c.path, w)
	}
	cfg.Slots = slotsOf(nil, io.EOF)
	conforms(t, "/api/v1/slots", get(page(t, cfg), "/api/v1/slots"))
	// Package admin's answer has the same stream in it.
	st, _ := busy()
	text, err := json.Marshal(status.Report{At: noon, Streams: []status.Stream{st}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	_, _ = w.Write(text)
	conforms(t, "/api/v1/status", w)
}
