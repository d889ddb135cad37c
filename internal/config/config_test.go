package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

var update = flag.Bool("update", false, "rewrite the wanted errors")

// Each file in testdata/bad has deliberate faults. The file next to it has what a user is told about them.
func TestBadFiles(t *testing.T) {
	t.Setenv("OUTBOX_TEST_GRACE", "hunter2")
	t.Setenv("OUTBOX_TEST_PASSWORD", "hunter2 hunter2")
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Load(file)
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want Problems", err)
			}
			folder, _ := filepath.Abs("testdata/bad")
			got := strings.ReplaceAll(err.Error()+"\n", folder+"/", "FOLDER/")
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is printed:\n%s", got)
			}
			want := strings.TrimSuffix(file, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			wanted, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(wanted) {
				t.Errorf("got:\n%s\nwant:\n%s", got, wanted)
			}
		})
	}
}

func load(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := Parse([]byte(text), "test.yaml", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func loadExample(t *testing.T, name string) *Config {
	t.Helper()
	t.Setenv("KAFKA_PASSWORD", "hunter2")
	t.Setenv("ORDERS_PASSWORD", "hunter2")
	cfg, err := Load("../../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestMinimalExampleHasDefaults(t *testing.T) {
	cfg := loadExample(t, "minimal.yaml")
	s := cfg.Streams[0]
	checks := []struct {
		what      string
		got, want any
	}{
		{"default cluster", cfg.Kafka.Default, "main"},
		{"cluster name", cfg.Kafka.Clusters["main"].Name, "main"},
		{"compression", cfg.Kafka.Clusters["main"].Compression, "none"},
		{"request timeout", cfg.Kafka.Clusters["main"].RequestTimeout, 10 * time.Second},
		{"listen", cfg.HTTP.Listen, "127.0.0.1:9187"},
		{"slot", s.Slot, "outbox_cdc_orders"},
		{"publication", s.Publication, "outbox_cdc_orders"},
		{"wal budget", s.WALBudget, Bytes(8 << 30)},
		{"mark connections", s.Mark.Connections, 3},
		{"drain", s.DrainTimeout, 30 * time.Second},
		{"host", s.Postgres.Host, "localhost"},
		{"database", s.Postgres.Database, "orders"},
		{"replication", s.Postgres.ReplicationSecret().Reveal(), "postgres://postgres@localhost:5432/orders"},
		{"table", s.OutboxTables()[0].String(), "public.outbox"},
	}
	for _, c := range checks {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestFullExample(t *testing.T) {
	cfg := loadExample(t, "outbox-cdc.yaml")
	if got, _ := cfg.Kafka.Clusters["main"].SASL.Password.Static(); got != "hunter2" {
		t.Errorf("password %q", got)
	}
	im2be := cfg.Streams[0].Tables[0].Outbox.Mapping
	if im2be.Payload.Column != "payload_bytes" || im2be.Status.MaxAttempts != 5 || im2be.Status.Failed != "FAILED" || im2be.Retention != 168*time.Hour {
		t.Errorf("overrides of the profile: %+v", im2be)
	}
	events := cfg.Streams[1].Tables[0].Outbox
	topic := events.Mapping.Topic
	if fmt.Sprint(topic.Literals, " ", topic.Columns[0].Column) != "[billing. .v1] event_type" {
		t.Errorf("template: %+v", topic)
	}
	if m := events.Mapping; m.Status.MaxAttempts != 10 || m.OnFailed != outbox.OnFailedBlock || m.Key.Encoding != outbox.EncodingUUID {
		t.Errorf("mapping: %+v", m)
	}
	if m := cfg.Streams[1].Tables[1].Outbox.Mapping; m.Cluster.Default != "audit" || m.Published != outbox.PublishedDelete {
		t.Errorf("mapping: %+v", m)
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	cfg := loadExample(t, "outbox-cdc.yaml")
	asJSON, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := cfg.Kafka.Clusters["main"].SASL
	printed := fmt.Sprintf("%s %s %v %+v %#v %x %q %d", asJSON, asYAML, s, s, s, s.Password, s.Password, s.Password)
	if strings.Contains(printed, "hunter2") || strings.Contains(printed, "68756e746572") {
		t.Errorf("a secret in:\n%s", printed)
	}
	if s.Password.String() != "[secret]" || (Secret{}).String() != "" {
		t.Error("the placeholder tells whether there is a value")
	}
}

const oneTable = `
kafka: {clusters: {main: {brokers: ["a:9092"]}}}
streams:
  - name: s
    postgres: {dsn: "postgres://u@h/db"}
    tables:
      - `

func TestReferences(t *testing.T) {
	t.Setenv("OUTBOX_TEST_TOPIC", "a.${b}")
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "prefix"), []byte("from-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(oneTable, `brokers: ["a:9092"]`, `brokers: ["a:9092"], client_id: "$${x} ${file:prefix} $5 $"`, 1) +
		`{table: public.a, profile: native, event_id: {header: "${env:OUTBOX_TEST_TOPIC}"}, topic: {template: "${file:prefix}.${topic}.x"}}`
	cfg, err := Parse([]byte(text), "test.yaml", folder)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Kafka.Clusters["main"].ClientID; got != "${x} from-file $5 $" {
		t.Errorf("client_id %q", got)
	}
	m := cfg.Streams[0].Tables[0].Outbox.Mapping
	if m.EventID.Name != "a.${b}" {
		t.Errorf("what a variable holds was expanded again: %q", m.EventID.Name)
	}
	if fmt.Sprint(m.Topic.Literals, " ", m.Topic.Columns[0].Column) != "[from-file. .x] topic" {
		t.Errorf("template %v", m.Topic)
	}
}

// A source in the table's own keys replaces the profile's source, whichever it is. Keys that go with every
// source stay.
func TestASourceReplacesTheProfiles(t *testing.T) {
	const topic = ", topic: {constant: orders}"
	for text, want := range map[string]string{
		`profile: debezium, key: {template: "${a}:${b}"}`:                                "a b",
		`profile: debezium, key: {first: [{column: a}, {column: b}]}`:                    "a b",
		`profile: eventuate, key: {column: a}`:                                           "a object",
		`profile: eventuate, key: {template: "${a}:${b}"}`:                               "a b object",
		`profile: eventuate, key: {first: null, column: a}`:                              "a object",
		`profile: im2be, key: {encoding: uuid}`:                                          "aggregate_id uuid",
		`profile: im2be, key: {template: null}`:                                          "aggregate_id",
		`profile: eventuate, key: {column: a}, payload: {column: p}`:                     "a from p",
		`profile: debezium, key: {column: a}, payload: {object: [{name: x, column: p}]}`: "a from p object",
		`profile: watermill-forwarder, key: {column: a}, payload: {tombstone: false}`:    "a from payload payload",
	} {
		m := load(t, oneTable+`{table: public.a, `+text+topic+`}`).Streams[0].Tables[0].Outbox.Mapping
		names := m.Key.Names()
		if m.Key.Parts != nil {
			names = names[1:] // the first of them
		}
		got := strings.Join(names, " ")
		if m.Key.Encoding == outbox.EncodingUUID {
			got += " uuid"
		}
		if strings.Contains(text, "payload") {
			got += strings.Join(append([]string{" from", m.Payload.Column}, m.Payload.Pointer...), " ")
		}
		if m.Payload.Object != nil {
			got += " object"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if _, err := Parse([]byte(oneTable+`{table: public.a, profile: native, key: {column: a, template: "${b}"}}`), "test.yaml", t.TempDir()); err == nil || !strings.Contains(err.Error(), "has more than one of column, first and template") {
		t.Error(err)
	}
}

func TestProfileOverrides(t *testing.T) {
	cfg := load(t, oneTable+`
        table: public.a
        profile: im2be
        topic: {constant: orders}
        key: null
        headers: []
        status: {version: null, pending: READY}
        order: [created_at, event_id]
`)
	m := cfg.Streams[0].Tables[0].Outbox.Mapping
	if m.Key != nil || len(m.Headers) != 0 || m.Status.Version != "" || m.Status.Sent != "SENT" {
		t.Errorf("mapping %+v", m)
	}
	if fmt.Sprint(m.Topic.Literals, m.Topic.Columns, m.Status.Pending, m.Order) != "[orders] [] [READY] [created_at event_id]" {
		t.Errorf("mapping %+v", m)
	}
}

func TestProfilesAreWhole(t *testing.T) {
	for _, name := range ProfileNames() {
		cfg := load(t, oneTable+`{table: public.a, profile: `+name+openTopic(name)+`}`)
		p, err := LoadProfile(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Summary == "" || cfg.Streams[0].Tables[0].Outbox == nil {
			t.Errorf("profile %s is not whole", name)
		}
	}
}

func TestAnchorsAndMergeKeys(t *testing.T) {
	cfg := load(t, `
kafka: {clusters: {main: {brokers: ["a:9092"]}}}
streams:
  - &first
    name: s
    postgres: {dsn: "postgres://u@h/db"}
    memory: &memory {rows: 500}
    tables: [&table {table: public.a, profile: native, grace: 1s}]
  - <<: *first
    name: t
    postgres: {dsn: "postgres://u@h/other"}
    memory: *memory
    tables: [{<<: *table, table: public.b}]
`)
	if s := cfg.Streams[1]; s.Name != "t" || s.Memory.Rows != 500 || s.Tables[0].Outbox.Mapping.Grace != time.Second {
		t.Errorf("stream %+v", s)
	}
}

// Aliases of aliases must not fill the memory.
func TestHugeFilesAreRefused(t *testing.T) {
	many := func(text string) string { return strings.TrimSuffix(strings.Repeat(text+",", 100), ",") }
	bomb := "kafka: {clusters: {a: {brokers: &b [" + many("x:1") + "]}}}\nstreams:\n  - {name: a, tables: &t [" + many("{id: *b , order: *b }") + "]}\n" +
		strings.Repeat("  - {name: a, tables: *t }\n", 1000)
	_, err := Parse([]byte(bomb), "test.yaml", ".")
	var problems Problems
	if !errors.As(err, &problems) || len(problems) > maxProblems {
		t.Errorf("got %v", err)
	}
}

func TestTableNames(t *testing.T) {
	for text, want := range map[string]string{
		"public.outbox":         "public|outbox|true",
		`"my.schema"."a ""b"""`: `my.schema|a "b"|true`,
		"Public.Outbox":         "Public|Outbox|true",
		"outbox":                "||false",
		"a.b.c":                 "a|b|false",
		".b":                    "||false",
		`"a.b`:                  "||false",
		"a.":                    "a||false",
	} {
		schema, name, ok := SplitTable(text)
		if got := fmt.Sprintf("%s|%s|%v", schema, name, ok); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0B": 0, "512B": 512, "64KiB": 65536, "1.5GiB": 3 << 29, "1kB": 1000, "3 MiB": 3 << 20} {
		if got, err := ParseBytes(text); got != want || err != nil {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "64", "MiB", "-1B", "NaNB", "InfB", "9e99B", "1XB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%s: got %d", text, got)
		}
	}
	if got := Bytes(8<<30).String() + Bytes(1500).String() + Bytes(0).String(); got != "8GiB1500B0B" {
		t.Errorf("printed %s", got)
	}
}

// Every file is read or refused, and none makes the program panic.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	files = append(files, "../../examples/outbox-cdc.yaml", "../../examples/minimal.yaml")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(string(data))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		around := surroundings{folder: "/nowhere", env: func(string) (string, bool) { return "x", true }}
		cfg, err := parse([]byte(text), "fuzz.yaml", around)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("config %v, error %v", cfg, err)
		}
	})
}

func TestMistypedParameters(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"sslmod": "sslmode", "searchpath": "search_path", "target_session_attr": "target_session_attrs",
		"sslmode": "", "TimeZone": "", "app.tenant": "", "enable_seqscan": "", "extra_float_digits": "", "ssl": "",
		"transaction_timeout": "", "idle_session_timeout": "", "maintenance_work_mem": "",
	} {
		if got := mistyped(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Each file with a secret that others can read is reported once.
func TestExposedSecrets(t *testing.T) {
	folder := t.TempDir()
	for name, mode := range map[string]os.FileMode{"open": 0o644, "closed": 0o600, "key.pem": 0o604, "x.yaml": 0o644} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(folder, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		`password: {file: open}`:              "open",
		`password: {file: closed}`:            "",
		`password: "${file:open}"`:            "open",
		`password: "${env:OUTBOX_TEST_CRED}"`: "",
		`password: hunter2`:                   "x.yaml",
	} {
		t.Setenv("OUTBOX_TEST_CRED", "hunter2")
		cfg, err := Parse([]byte(`
kafka: {clusters: {main: {brokers: ["localhost:9092"], tls: {cert_file: closed, key_file: key.pem}}}}
streams: [{name: s, postgres: {dsn: "postgres://u@localhost/d", `+text+`}, tables: [{table: public.a, profile: native}]}]
`), filepath.Join(folder, "x.yaml"), folder)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(cfg.Warnings, "\n")
		if n := len(cfg.Warnings); !strings.Contains(got, "key.pem") || want != "" && !strings.Contains(got, "/"+want) || n > 2 || want == "" && n != 1 || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// The file is that of --config, of the environment, of this folder, or of a package.
func TestTheDefaultFile(t *testing.T) {
	mine, packaged := DefaultFiles[0], DefaultFiles[1]
	for _, c := range []struct {
		env   string
		there []string
		want  string
	}{
		{"", []string{mine, packaged}, mine},
		{"", []string{packaged}, packaged},
		{"", nil, mine},
		{"/elsewhere.yaml", []string{mine, packaged}, "/elsewhere.yaml"},
	} {
		got := defaultFile(
			func(name string) (string, bool) { return c.env, name == FileVariable },
			func(file string) bool { return slices.Contains(c.there, file) })
		if got != c.want {
			t.Errorf("%q, %v: %s, wanted %s", c.env, c.there, got, c.want)
		}
	}

	t.Chdir(t.TempDir())
	t.Setenv(FileVariable, "none.yaml")
	if _, err := Load(""); err == nil || !strings.Contains(err.Error(), "none.yaml") || !strings.Contains(err.Error(), "OUTBOX_CDC_CONFIG") {
		t.Errorf("of the environment: %v", err)
	}
	if err := os.WriteFile(mine, []byte("streams: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(FileVariable, "")
	if _, err := Load(""); err == nil || !strings.Contains(err.Error(), mine+":1:") {
		t.Errorf("of this folder: %v", err)
	}
}
