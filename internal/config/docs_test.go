package config

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/outbox-cdc/outbox-cdc/test/doctable"
	"github.com/outbox-cdc/outbox-cdc/test/stable"
)

// The tables of docs/configuration.md are made from the structs; -update writes
// them again.
func TestReferenceIsUpToDate(t *testing.T) {
	doctable.Section(t, "../../docs/configuration.md", "<!-- keys: made from package config by make generated -->", "<!-- keys end -->", keyTables(), *update)
}

// A file that one release of 1.x accepts is accepted by the next one.
func TestKeysAreStable(t *testing.T) {
	var now []string
	for _, s := range sections {
		doctable.Keys(s.of, "yaml", "", listedBelow, func(key, _ string, f reflect.StructField) {
			line := strings.ReplaceAll(s.title, "`", "") + ": " + key + ": " + stable.TypeName(f.Type)
			now = append(now, line)
			for word := range strings.SplitSeq(f.Tag.Get("enum"), ",") {
				if word != "" {
					now = append(now, line+": "+word)
				}
			}
		})
	}
	for _, profile := range ProfileNames() {
		now = append(now, "profile: "+profile)
	}
	stable.Compare(t, "configuration", now, *update)
}

// Every key of every struct is described.
func TestEveryKeyIsDescribed(t *testing.T) {
	for _, typ := range structs() {
		alone := func(reflect.Type) bool { return false }
		doctable.Keys(typ, "yaml", "", alone, func(key, meaning string, _ reflect.StructField) {
			if meaning == "" {
				t.Errorf("%s.%s has no comment", typ.Name(), key)
			}
		})
	}
}

func structs() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[Config](), reflect.TypeFor[Kafka](), reflect.TypeFor[Cluster](), reflect.TypeFor[TLS](), reflect.TypeFor[SASL](),
		reflect.TypeFor[Stream](), reflect.TypeFor[Transaction](), reflect.TypeFor[Journal](), reflect.TypeFor[Postgres](), reflect.TypeFor[Memory](), reflect.TypeFor[Limits](), reflect.TypeFor[Backoff](), reflect.TypeFor[Sweep](), reflect.TypeFor[Mark](),
		reflect.TypeFor[Table](), reflect.TypeFor[Share](), reflect.TypeFor[MappingSpec](), reflect.TypeFor[TopicSpec](), reflect.TypeFor[KeySpec](), reflect.TypeFor[PayloadSpec](),
		reflect.TypeFor[RowSpec](), reflect.TypeFor[PlaceSpec](), reflect.TypeFor[ExpirySpec](), reflect.TypeFor[MemberSpec](), reflect.TypeFor[HeaderSpec](), reflect.TypeFor[HeaderListSpec](), reflect.TypeFor[TraceSpec](), reflect.TypeFor[EventIDSpec](), reflect.TypeFor[ClusterSpec](), reflect.TypeFor[StatusSpec](),
		reflect.TypeFor[WriterSpec](), reflect.TypeFor[ShedLockSpec](), reflect.TypeFor[HeadersTableSpec](), reflect.TypeFor[HTTP](), reflect.TypeFor[HTTPTLS](), reflect.TypeFor[HTTPAuth](), reflect.TypeFor[HTTPUser](), reflect.TypeFor[Credential](),
	}
}

// sections are the structs with a table of their own, and where their keys are in the
// file. Keys of all others are in the table of the struct that has them.
var sections = []section{
	{reflect.TypeFor[Config](), "The file"},
	{reflect.TypeFor[Cluster](), "`kafka.clusters.NAME`"},
	{reflect.TypeFor[Stream](), "`streams[]`"},
	{reflect.TypeFor[Table](), "`streams[].tables[]`"},
	{reflect.TypeFor[MappingSpec](), "The mapping, in `streams[].tables[]` and in profiles"},
	{reflect.TypeFor[HeaderSpec](), "`headers[]`"},
	{reflect.TypeFor[HTTP](), "`http`"},
	{reflect.TypeFor[Credential](), "A secret that is elsewhere"},
}

type section struct {
	of    reflect.Type
	title string
}

func keyTables() string {
	var out strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&out, "\n### %s\n\n%s\n\nkey | default, or type | meaning\n---|---|---\n", s.title, forFile(doctable.Comment(s.of, "")))
		doctable.Keys(s.of, "yaml", "", listedBelow, func(key, meaning string, f reflect.StructField) {
			out.WriteString(doctable.Row("`"+key+"`", defaultOrType(f), meaning))
		})
	}
	return out.String() + "\n"
}

// listedBelow: the keys of the struct are written below that of the field that has it.
func listedBelow(t reflect.Type) bool {
	elsewhere := t == reflect.TypeFor[PlaceSpec]() || slices.ContainsFunc(sections, func(s section) bool { return s.of == t })
	return !elsewhere && slices.Contains(structs(), t)
}

// forFile drops what only readers of the source need.
func forFile(text string) string {
	text, _, _ = strings.Cut(text, " The comments on its fields")
	return text
}

// defaultOrType returns the default with the other permitted values, or the type of a key without a default.
func defaultOrType(f reflect.StructField) string {
	value, def := typeName(f.Type), f.Tag.Get("default")
	if def != "" {
		value = "`" + def + "`"
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		others := slices.DeleteFunc(strings.Split(enum, ","), func(word string) bool { return word == def })
		value = strings.TrimPrefix(value+" or `"+strings.Join(others, "`, `")+"`", typeName(f.Type)+" or ")
	}
	if f.Tag.Get("required") == "true" {
		value += ", required"
	}
	switch low, high := f.Tag.Get("min"), f.Tag.Get("max"); {
	case low != "" && high != "":
		return value + ", " + low + " to " + high
	case low != "":
		return value + ", at least " + low
	}
	return value
}

func typeName(t reflect.Type) string {
	switch {
	case t == typeBytes:
		return "size"
	case t == reflect.PointerTo(typeCredential):
		return "[secret](#a-secret-that-is-elsewhere)"
	case t == typeSecret, t == typePath, t == typeTemplate, t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem())
	case t.Kind() == reflect.Int:
		return "number"
	case t.Kind() == reflect.Slice:
		return "list"
	}
	return "keys"
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

// The configuration that fits all managed servers is accepted, with each of the page's ways to provide a
// password.
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

// The mechanisms that a file may name are those whose keys are checked.
func TestMechanismsAreChecked(t *testing.T) {
	field, _ := reflect.TypeFor[SASL]().FieldByName("Mechanism")
	named := strings.Split(field.Tag.Get("enum"), ",")
	for way := range saslKeys {
		mechanism, _, _ := strings.Cut(way, " with ")
		if !slices.Contains(named, mechanism) {
			t.Errorf("no file may name %s", mechanism)
		}
	}
	for _, mechanism := range named {
		if _, ok := saslKeys[mechanism]; !ok {
			t.Errorf("the keys of %s are not checked", mechanism)
		}
	}
}
