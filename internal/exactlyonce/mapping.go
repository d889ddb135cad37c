package exactlyonce

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Mapping is a fingerprint of the settings that make records of a table's rows. It is a part of each name: a
// row has the same name only under the same Mapping.
type Mapping [4]byte

// ErrMapping says that the mapping was changed while rows published with the earlier one were still to be
// marked. Under the new mapping, these rows cannot be recognized.
var ErrMapping = errors.New("rows were published with another mapping (topic, key, payload, created_at, or published to or from none) and are not marked yet")

// ErrTakenOut says that a table was taken out of the stream, or renamed, before all of its published rows
// were marked.
var ErrTakenOut = errors.New("rows were published and are not marked yet, and the stream does not have the table any more")

// mappingVersion is raised when a new version of this program makes another topic, key, value or time of
// creation of a row, with the same configuration.
const mappingVersion = 1

// mappings caches the Mapping of each table, since names are made on the hot path.
var mappings sync.Map // of *outbox.Table

// MappingOf returns the Mapping of a table; the zero one for nil.
func MappingOf(t *outbox.Table) Mapping {
	if t == nil {
		return Mapping{}
	}
	if m, ok := mappings.Load(t); ok {
		return m.(Mapping) //nolint:forcetypeassert // nothing else is stored
	}
	m := fingerprint(&t.Mapping)
	mappings.Store(t, m)
	return m
}

// fingerprint returns the Mapping of the settings that a name depends on. Settings that are not set do not
// count, so that a later version of the program, which has more settings, computes the same.
func fingerprint(m *outbox.Mapping) (out Mapping) {
	of := map[string]any{
		"version": mappingVersion, "topic": m.Topic, "key": m.Key, "payload": m.Payload, "created_at": m.CreatedAt,
		"epoch": m.Epoch,
	}
	if m.Zone != nil { // it converts times in the payload
		of["time_zone"] = m.Zone.String()
	}
	if m.Published == outbox.PublishedNone { // the names of its rows depend on more, see NameInLog
		of["stateless"], of["id"] = true, m.ID
	}
	text, err := json.Marshal(of)
	var settings any
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err == nil {
		text, err = json.Marshal(set(settings)) // sorted by key
	}
	if err != nil {
		panic(err) // a mapping is made of text, lists and maps, which can always be encoded
	}
	sum := sha256.Sum256(text)
	copy(out[:], sum[:])
	return out
}

// set removes the fields of objects that are not set, at every level.
func set(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if field = set(field); unset(field) {
				delete(v, name)
			} else {
				v[name] = field
			}
		}
	case []any:
		for i := range v {
			v[i] = set(v[i])
		}
	}
	return v
}

func unset(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return v == nil || v == false || v == "" || v == 0.0
}

// Unknown returns the name of the first table that still has published rows to mark, but is not one of the
// stream's tables; empty: there is none.
func Unknown(missing []Placed, left []Left, tables []*outbox.Table) string {
	known := make(map[string]bool, len(tables))
	for _, t := range tables {
		known[t.String()] = true
	}
	for i := range missing {
		if !known[missing[i].Table] {
			return missing[i].Table
		}
	}
	for i := range left {
		if !known[left[i].Table] {
			return left[i].Table
		}
	}
	return ""
}

// Remapped returns the name of the first table that still has published rows to mark, but has another
// mapping now; empty: there is none. It ignores tables that are not the stream's, see Unknown.
func Remapped(missing []Placed, left []Left, tables []*outbox.Table) string {
	now := make(map[string]Mapping, len(tables))
	for _, t := range tables {
		now[t.String()] = MappingOf(t)
	}
	other := func(table string, n *Name) bool {
		m, ours := now[table]
		return ours && Mapping(n.Hash[recordHash:]) != m
	}
	for i := range missing {
		for j := range missing[i].Names {
			if other(missing[i].Table, &missing[i].Names[j]) {
				return missing[i].Table
			}
		}
	}
	for i := range left {
		if other(left[i].Table, &left[i].Name) {
			return left[i].Table
		}
	}
	return ""
}
