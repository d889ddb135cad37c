package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

const referencePage = "../../docs/configuration.md"

// The tables of docs/configuration.md are made from the structs; -update writes
// them again.
func TestReferenceIsUpToDate(t *testing.T) {
	text, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- keys: made from package config by make generated -->\n", "<!-- keys end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	made, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the markers are gone")
	}
	want := keyTables()
	if *update {
		if err := os.WriteFile(referencePage, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if made != want {
		t.Error("docs/configuration.md is not what package config says; make generated")
	}
}

// Every key of every struct is described.
func TestEveryKeyIsDescribed(t *testing.T) {
	for _, typ := range structs() {
		for f := range typ.Fields() {
			key := f.Tag.Get("yaml")
			if key == "" || key == "-" || key == ",inline" {
				continue
			}
			if descriptions()[typ.Name()+"."+f.Name] == "" {
				t.Errorf("%s.%s has no comment", typ.Name(), f.Name)
			}
		}
	}
}

func structs() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[Config](), reflect.TypeFor[Kafka](), reflect.TypeFor[Cluster](), reflect.TypeFor[TLS](), reflect.TypeFor[SASL](),
		reflect.TypeFor[Stream](), reflect.TypeFor[Transaction](), reflect.TypeFor[Journal](), reflect.TypeFor[Postgres](), reflect.TypeFor[Memory](), reflect.TypeFor[Limits](), reflect.TypeFor[Backoff](), reflect.TypeFor[Sweep](), reflect.TypeFor[Mark](),
		reflect.TypeFor[Table](), reflect.TypeFor[Share](), reflect.TypeFor[MappingSpec](), reflect.TypeFor[TopicSpec](), reflect.TypeFor[KeySpec](), reflect.TypeFor[PayloadSpec](),
		reflect.TypeFor[RowSpec](), reflect.TypeFor[PlaceSpec](), reflect.TypeFor[ExpirySpec](), reflect.TypeFor[HeaderSpec](), reflect.TypeFor[TraceSpec](), reflect.TypeFor[EventIDSpec](), reflect.TypeFor[ClusterSpec](), reflect.TypeFor[StatusSpec](),
		reflect.TypeFor[WriterSpec](), reflect.TypeFor[ShedLockSpec](), reflect.TypeFor[HeadersTableSpec](), reflect.TypeFor[HTTP](), reflect.TypeFor[HTTPTLS](), reflect.TypeFor[HTTPAuth](), reflect.TypeFor[HTTPUser](), reflect.TypeFor[Credential](),
	}
}

// titles say where a struct's keys stand in the file.
var titles = map[string]string{
	"Config": "The file", "Kafka": "`kafka`", "Cluster": "`kafka.clusters.NAME`", "TLS": "`kafka.clusters.NAME.tls`", "SASL": "`kafka.clusters.NAME.sasl`",
	"Stream": "`streams[]`", "Transaction": "`streams[].transaction`", "Journal": "`streams[].journal`", "Postgres": "`streams[].postgres`", "Memory": "`streams[].memory`", "Limits": "`streams[].limits`", "Backoff": "`streams[].backoff`", "Sweep": "`streams[].sweep`", "Mark": "`streams[].mark`",
	"Table": "`streams[].tables[]`", "Share": "`streams[].tables[].share`", "MappingSpec": "The mapping, in `streams[].tables[]` and in profiles", "TopicSpec": "`topic`", "KeySpec": "`key`", "PayloadSpec": "`payload`",
	"TraceSpec": "`headers[].trace`", "WriterSpec": "`writer`", "ShedLockSpec": "`shedlock` and `retention_lock`", "HeadersTableSpec": "`headers_table`",
	"RowSpec": "`rows[]`", "PlaceSpec": "`first[]`", "ExpirySpec": "`status.expires_at`", "HeaderSpec": "`headers[]`", "EventIDSpec": "`event_id`", "ClusterSpec": "`cluster`", "StatusSpec": "`status`", "HTTP": "`http`", "HTTPTLS": "`http.tls`", "HTTPAuth": "`http.auth`", "HTTPUser": "`http.auth.users[]`",
	"Credential": "A secret that is elsewhere",
}

func keyTables() string {
	var out strings.Builder
	for _, t := range structs() {
		fmt.Fprintf(&out, "\n### %s\n\n%s\n\n| key | type | default | |\n|---|---|---|---|\n", titles[t.Name()], forFile(descriptions()[t.Name()]))
		for f := range t.Fields() {
			if key := f.Tag.Get("yaml"); key != "" && key != "-" && key != ",inline" {
				fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", key, typeName(f), defaultText(f), cell(descriptions()[t.Name()+"."+f.Name]))
			}
		}
	}
	return out.String() + "\n"
}

// forFile drops what only readers of the source need.
func forFile(text string) string {
	text, _, _ = strings.Cut(text, " The comments on its fields")
	return text
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func typeName(f reflect.StructField) string {
	t := f.Type
	name := map[bool]string{true: "text", false: ""}[t.Kind() == reflect.String]
	switch {
	case f.Tag.Get("enum") != "" && t.Kind() == reflect.Slice:
		return "list of `" + strings.ReplaceAll(f.Tag.Get("enum"), ",", "`, `") + "`"
	case f.Tag.Get("enum") != "":
		return "`" + strings.ReplaceAll(f.Tag.Get("enum"), ",", "`, `") + "`"
	case t == typeDuration:
		name = "duration"
	case t == typeBytes:
		name = "size"
	case t == typeSecret:
		name = "text, never printed"
	case t == reflect.PointerTo(typeCredential):
		name = "text, or where it is; never printed"
	case t == typePath:
		name = "path"
	case t == typeTemplate:
		name = "text with `${column}`"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Int:
		name = "number"
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.String:
		name = "text"
	case t.Kind() == reflect.Bool:
		name = "`true`, `false`"
	case t.Kind() == reflect.Slice && isText(t.Elem()):
		name = "list of texts"
	case t.Kind() == reflect.Slice:
		name = "list"
	case t.Kind() == reflect.Map:
		name = "names with keys"
	case name == "":
		name = "keys"
	}
	low, high := f.Tag.Get("min"), f.Tag.Get("max")
	switch {
	case low != "" && high != "":
		return name + ", " + low + " to " + high
	case low != "":
		return name + ", at least " + low
	}
	return name
}

func defaultText(f reflect.StructField) string {
	if f.Tag.Get("required") == "true" {
		return "required"
	}
	if text := f.Tag.Get("default"); text != "" {
		return "`" + text + "`"
	}
	return ""
}

func TestSchemaAcceptsTheExamples(t *testing.T) {
	schema := compileSchema(t)
	for _, name := range []string{"minimal.yaml", "outbox-cdc.yaml"} {
		if err := schema.Validate(asJSON(t, "../../examples/"+name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is wrong in shape or in a single value is wrong for the schema too.
func TestSchemaRefusesBadFiles(t *testing.T) {
	schema := compileSchema(t)
	for _, name := range []string{"unknown_keys", "missing", "values", "secrets", "profile", "mapping"} {
		if schema.Validate(asJSON(t, "testdata/bad/"+name+".yaml")) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func compileSchema(t *testing.T) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(JSONSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("config.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func asJSON(t *testing.T, file string) any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// The configuration of each service is accepted.
func TestBrokersPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.HasPrefix(block, "kafka:") {
			continue
		}
		n++
		folder := t.TempDir()
		block = strings.ReplaceAll(block, "/certs/", "")
		for _, m := range regexp.MustCompile(`_file: ([\w./]+)`).FindAllStringSubmatch(block, -1) {
			file := filepath.Join(folder, m[1])
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		block += "streams: [{name: orders, postgres: {dsn: postgres://localhost/orders}, tables: [{table: public.outbox, profile: native}]}]\n"
		if _, err := Parse([]byte(block), "compatibility.md", folder); err != nil {
			t.Errorf("%v\n%s", err, block)
		}
	}
	if n < 7 {
		t.Errorf("%d configurations", n)
	}
}

// So is the one that all managed servers share, and each way to a password there.
func TestPlatformsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/platforms.md")
	if err != nil {
		t.Fatal(err)
	}
	_, whole, _ := strings.Cut(string(text), "```yaml\n")
	whole, _, _ = strings.Cut(whole, "```")
	whole = strings.ReplaceAll(whole, "&sslrootcert=ca.pem", "") // a file of the reader's
	const from = "password: {file: /run/secrets/writer}"
	passwords := regexp.MustCompile(`password: \{command: .*\}`).FindAllString(string(text), -1)
	if len(passwords) < 3 || strings.Count(whole, " "+from) != 1 {
		t.Fatalf("%q in\n%s", passwords, whole)
	}
	for _, password := range append(passwords, from) {
		if _, err := Parse([]byte(strings.Replace(whole, from, password, 1)), "platforms.md", t.TempDir()); err != nil {
			t.Errorf("%s: %v", password, err)
		}
	}
}
