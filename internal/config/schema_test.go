package config

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"github.com/outbox-cdc/outbox-cdc/test/doctable"
)

// schema.json is made here, from the types and the comments on their fields, so
// that the program links neither the parser nor the library that this takes.
func TestSchemaIsMadeOfTheTypes(t *testing.T) {
	made, err := makeSchema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("schema.json", made, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(made, JSONSchema) {
		t.Error("internal/config/schema.json is older than the types: make generated")
	}
}

func makeSchema() ([]byte, error) {
	g := schemaMaker{definitions: jsonschema.Definitions{}}
	g.define(reflect.TypeFor[Config](), false)
	root := g.definitions["Config"]
	delete(g.definitions, "Config")
	root.Version = jsonschema.Version
	root.Title = "outbox-cdc configuration"
	root.Definitions = g.definitions
	made, err := json.MarshalIndent(root, "", "  ")
	return append(made, '\n'), err
}

type schemaMaker struct{ definitions jsonschema.Definitions }

// define makes the definition of a struct once and refers to it.
func (g *schemaMaker) define(t reflect.Type, nulls bool) *jsonschema.Schema {
	if _, done := g.definitions[t.Name()]; !done {
		s := &jsonschema.Schema{
			Type:                 "object",
			Description:          doctable.Comment(t, ""),
			Properties:           jsonschema.NewProperties(),
			AdditionalProperties: jsonschema.FalseSchema,
		}
		g.definitions[t.Name()] = s
		g.fields(s, t, nulls || t == typeTable)
	}
	return &jsonschema.Schema{Ref: "#/$defs/" + t.Name()}
}

func (g *schemaMaker) fields(s *jsonschema.Schema, t reflect.Type, nulls bool) {
	for f := range t.Fields() {
		switch key := f.Tag.Get("yaml"); key {
		case "", "-":
		case ",inline":
			g.fields(s, f.Type, nulls)
		default:
			required := f.Tag.Get("required") == "true"
			if required {
				s.Required = append(s.Required, key)
			}
			value := g.value(f.Type, f.Tag, nulls)
			if t == typeTable && key == "profile" {
				value = anyOf(words(ProfileNames()), referencing())
			}
			if nulls && !required {
				value = anyOf(value, &jsonschema.Schema{Type: "null"})
			}
			s.Properties.Set(key, described(value, t, f))
		}
	}
}

// described adds what the field's comment and tags say.
func described(s *jsonschema.Schema, t reflect.Type, f reflect.StructField) *jsonschema.Schema {
	out := *s // next to $ref is fine in this draft
	out.Description = doctable.Comment(t, f.Name)
	if text, ok := f.Tag.Lookup("default"); ok {
		out.Default = defaultValue(f.Type, text)
	}
	return &out
}

func defaultValue(t reflect.Type, text string) any {
	v := reflect.New(t).Elem()
	if t == typeDuration || t == typeBytes || !parseScalar(v, text) {
		return text
	}
	return v.Interface()
}

func (g *schemaMaker) value(t reflect.Type, tags reflect.StructTag, nulls bool) *jsonschema.Schema {
	if enum := tags.Get("enum"); enum != "" {
		word := anyOf(words(strings.Split(enum, ",")), referencing())
		if t.Kind() == reflect.Slice {
			return anyOf(&jsonschema.Schema{Type: "array", Items: word}, word)
		}
		return word
	}
	switch t {
	case typeDuration:
		return anyOf(&jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`}, referencing())
	case typeBytes:
		return anyOf(&jsonschema.Schema{Type: "string", Pattern: `^[0-9]+(\.[0-9]+)? ?([KMGT]iB|[kMGT]?B)$`}, referencing())
	case typeSecret, typePath, typeTemplate:
		return scalar()
	case typeValue:
		return anyOf(scalar(), &jsonschema.Schema{Type: "null"})
	case typeCredential:
		return anyOf(scalar(), g.define(t, nulls))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.value(t.Elem(), tags, nulls)
	case reflect.Struct:
		return g.define(t, nulls)
	case reflect.Map:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: g.value(t.Elem(), "", nulls)}
	case reflect.Slice:
		return g.list(t, nulls)
	case reflect.Bool:
		return anyOf(&jsonschema.Schema{Type: "boolean"}, referencing())
	case reflect.Int:
		n := &jsonschema.Schema{Type: "integer", Minimum: json.Number(tags.Get("min")), Maximum: json.Number(tags.Get("max"))}
		return anyOf(n, referencing())
	}
	return scalar()
}

func (g *schemaMaker) list(t reflect.Type, nulls bool) *jsonschema.Schema {
	item := g.value(t.Elem(), "", nulls)
	list := &jsonschema.Schema{Type: "array", Items: item}
	if isText(t.Elem()) {
		return anyOf(list, scalar()) // a list of one may be written without brackets
	}
	return list
}

// scalar is a text; a number or boolean is taken as written.
func scalar() *jsonschema.Schema {
	return anyOf(&jsonschema.Schema{Type: "string"}, &jsonschema.Schema{Type: "number"}, &jsonschema.Schema{Type: "boolean"})
}

// referencing is a text with a reference in it, possible for any value.
func referencing() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `\$\{(env|file):`}
}

func words(list []string) *jsonschema.Schema {
	s := &jsonschema.Schema{}
	for _, w := range list {
		s.Enum = append(s.Enum, w)
	}
	return s
}

func anyOf(choices ...*jsonschema.Schema) *jsonschema.Schema {
	var flat []*jsonschema.Schema
	for _, c := range choices {
		if c.AnyOf != nil {
			flat = append(flat, c.AnyOf...)
			continue
		}
		flat = append(flat, c)
	}
	return &jsonschema.Schema{AnyOf: flat}
}
