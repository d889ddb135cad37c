package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
)

// secretOfFuzz is every secret that FuzzStructured writes.
const secretOfFuzz = "hunter2correcthorse"

// fuzzBase is a configuration that is accepted.
var fuzzBase = map[string]any{
	"kafka": map[string]any{"clusters": map[string]any{"main": map[string]any{
		"brokers": []any{"localhost:9092"},
		"sasl":    map[string]any{"mechanism": "PLAIN", "username": "u", "password": secretOfFuzz},
	}}},
	"streams": []any{map[string]any{
		"name":     "orders",
		"postgres": map[string]any{"dsn": "postgres://cdc:" + secretOfFuzz + "@localhost/orders"},
		"tables":   []any{map[string]any{"table": "public.outbox", "profile": "native"}},
	}},
	"http": map[string]any{"auth": map[string]any{"token": secretOfFuzz}},
}

// hostileValues are put where a key's value should be.
var hostileValues = []any{
	nil, true, 0, -1, 1e300, "", " ", "\x00", "\u202e", "${", "${env:}", "${env:X}", "${file:/nonexistent}", "${x}", "$${x}", "9223372036854775808", "-1s", "1e9h", "1PiB", "NaNB",
	strings.Repeat("a", 5000),
	[]any{},
	[]any{nil},
	[]any{[]any{}},
	map[string]any{},
	map[string]any{"": nil},
	map[string]any{"x": map[string]any{}},
	[]any{"a", "a"},
	"postgres://u:" + secretOfFuzz + "@/%zz", "postgres://u:" + secretOfFuzz + "@h:port/d", "host=h password=" + secretOfFuzz + " x", "password='" + secretOfFuzz, secretOfFuzz,
	map[string]any{"file": "/nonexistent"},
	map[string]any{"command": []any{"true"}},
	map[string]any{"file": "a", "command": []any{}},
}

// secretKeys are those whose values are secrets; the others' may be shown.
var secretKeys = map[string]bool{"dsn": true, "replication_dsn": true, "password": true, "replication_password": true, "token": true, "client_secret": true}

func withoutSecret(value any) any {
	if text, ok := value.(string); ok {
		return strings.ReplaceAll(text, secretOfFuzz, "plain")
	}
	return value
}

// schemaPaths are the paths of all keys in schema.json, from the root; * stands
// for any name or position.
func schemaPaths(t testing.TB) (paths []string) {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(JSONSchema, &schema); err != nil {
		t.Fatal(err)
	}
	definitions, _ := schema["$defs"].(map[string]any)
	seen := map[string]bool{}
	var walk func(node any, path string, depth int)
	walk = func(node any, path string, depth int) {
		n, ok := node.(map[string]any)
		if !ok || depth > 30 {
			return
		}
		if ref, _ := n["$ref"].(string); ref != "" {
			walk(definitions[strings.TrimPrefix(ref, "#/$defs/")], path, depth+1)
		}
		for _, key := range []string{"anyOf", "oneOf", "allOf"} {
			list, _ := n[key].([]any)
			for _, one := range list {
				walk(one, path, depth+1)
			}
		}
		properties, _ := n["properties"].(map[string]any)
		for key, value := range properties {
			if below := path + "/" + key; !seen[below] {
				seen[below] = true
				walk(value, below, depth+1)
			}
		}
		walk(n["items"], path+"/*", depth+1)
		walk(n["additionalProperties"], path+"/*", depth+1)
	}
	walk(schema, "", 0)
	for path := range seen {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	return paths
}

// set returns node with the value at the path, and what is needed on the way.
func set(node any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "*" {
		switch n := node.(type) {
		case []any:
			if len(n) > 0 {
				return append([]any{set(n[0], path[1:], value)}, n[1:]...)
			}
		case map[string]any:
			if keys := slices.Sorted(maps.Keys(n)); len(keys) > 0 { // the same input makes the same file
				return set(n, append([]string{keys[0]}, path[1:]...), value)
			}
		}
		return []any{set(nil, path[1:], value)}
	}
	made := map[string]any{}
	if old, ok := node.(map[string]any); ok {
		for k, v := range old {
			made[k] = v
		}
	}
	made[path[0]] = set(made[path[0]], path[1:], value)
	return made
}

var positioned = regexp.MustCompile(`^fuzz\.yaml:\d+:\d+: `)

// FuzzStructured: whatever is where the schema has a key, reading the file
// does not panic, every problem says where it is, no secret is in a problem
// or in what is printed, and reading again what was accepted gives the same.
func FuzzStructured(f *testing.F) {
	paths := schemaPaths(f)
	if len(paths) < 100 {
		f.Fatalf("%d keys in the schema", len(paths))
	}
	for i := range paths {
		f.Add(uint16(i), uint16(i), uint16(i*7), uint16(i*3), "x")
		f.Add(uint16(i), uint16(len(hostileValues)), uint16(i), uint16(len(hostileValues)), secretOfFuzz)
	}
	f.Fuzz(func(t *testing.T, path1, value1, path2, value2 uint16, text string) {
		var root any = fuzzBase
		for _, one := range [][2]uint16{{path1, value1}, {path2, value2}} {
			value := any(text)
			if i := int(one[1]) % (len(hostileValues) + 1); i < len(hostileValues) {
				value = hostileValues[i]
			}
			path := strings.Split(paths[int(one[0])%len(paths)], "/")[1:]
			if !secretKeys[path[len(path)-1]] {
				value = withoutSecret(value)
			}
			root = set(root, path, value)
		}
		// JSON is YAML; a line for each value gives each a position of its own.
		file, err := json.MarshalIndent(root, "", " ")
		if err != nil {
			return
		}
		around := surroundings{folder: "/nowhere", env: func(string) (string, bool) { return "plain", true }}
		cfg, err := parse(file, "fuzz.yaml", around)
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("%v\n%s", err, file)
			}
			for _, p := range problems {
				if !positioned.MatchString(p.Error()) {
					t.Fatalf("no position: %v\n%s", p, file)
				}
			}
			if strings.Contains(err.Error(), secretOfFuzz) {
				t.Fatalf("a secret: %v\n%s", err, file)
			}
			return
		}
		again, err := parse(file, "fuzz.yaml", around)
		if err != nil || again.Hash() != cfg.Hash() {
			t.Fatalf("read again: %v\n%s", err, file)
		}
		for i, s := range cfg.Streams {
			printed, err := cfg.InForce(s)
			if err != nil {
				t.Fatalf("%v\n%s", err, file)
			}
			if more, err := again.InForce(again.Streams[i]); err != nil || more != printed {
				t.Fatalf("%v: %s\n%s", err, more, printed)
			}
			if text := printed + fmt.Sprintf("%+v", s.Postgres); strings.Contains(text, secretOfFuzz) {
				t.Fatalf("a secret:\n%s", text)
			}
		}
	})
}
