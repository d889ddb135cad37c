package tablesql

import (
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// covering returns the condition that a row belongs to one of the scopes. It compares keys, topics and
// clusters in the form that package mapping gives them. A scope that no row of this table can belong to adds
// nothing. all: every row belongs to one. An empty condition: no row does.
func (r *Relation) covering(p *Params, scopes []outbox.Scope) (condition string, all bool) {
	var terms, ids []string
	var keys []outbox.Scope
	topics := map[string]*Array{} // by cluster
	for _, s := range scopes {
		if s.Table != "" && s.Table != r.Table.String() {
			continue
		}
		switch s.Kind {
		case outbox.ScopeStream, outbox.ScopeTable:
			return "", true
		case outbox.ScopeCluster:
			terms = append(terms, r.onCluster(p, s.Cluster))
		case outbox.ScopeTopic:
			if topics[s.Cluster] == nil {
				topics[s.Cluster] = &Array{}
			}
			topics[s.Cluster].Add(s.Topic)
		case outbox.ScopeKey:
			keys = append(keys, s)
		case outbox.ScopeRow:
			ids = append(ids, s.ID)
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(topics)) {
		terms = append(terms, "("+r.onCluster(p, cluster)+" AND "+among(p, []string{r.topic()}, []Array{*topics[cluster]}, []string{"text"})+")")
	}
	terms = notEmpty(append(terms, r.withKeys(p, keys), r.amongIDs(p, ids)))
	if len(terms) == 0 {
		return "", false
	}
	return "(" + strings.Join(terms, " OR ") + ")", false
}

// amongIDs returns the condition that a row has one of the ids. Ids that no row of this table can have are
// left out; "" if none remains. IN with an uncorrelated subquery, behind NOT or in an OR, is a hash lookup
// per row and keeps the order of an index scan.
func (r *Relation) amongIDs(p *Params, ids []string) string {
	columns := r.ids()
	arrays := make([]Array, len(columns))
	for _, id := range ids {
		parts := outbox.SplitID(id)
		if !fitAll(columns, parts) {
			continue
		}
		for i := range parts {
			arrays[i].Add(parts[i])
		}
	}
	if len(arrays[0].elements) == 0 {
		return ""
	}
	refs, types := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		refs[i], types[i] = Ref(c.Name), c.Type
	}
	if slices.ContainsFunc(columns, func(c *Column) bool { return c.Operators != "" }) { // IN can only use pg_catalog's operator
		return "EXISTS (SELECT FROM unnest(" + bind(p, arrays, types) + ") AS u(" + r.idColumns("") + ") WHERE " + r.sameID() + ")"
	}
	return among(p, refs, arrays, types)
}

func fitAll(columns []*Column, parts []string) bool {
	return slices.EqualFunc(columns, parts, (*Column).fits)
}

// among compares expressions with the rows of parallel bound arrays.
func among(p *Params, expressions []string, arrays []Array, types []string) string {
	return "(" + strings.Join(expressions, ", ") + ") IN (SELECT * FROM unnest(" + bind(p, arrays, types) + "))"
}

// bind binds parallel arrays and lists their placeholders.
func bind(p *Params, arrays []Array, types []string) string {
	bound := make([]string, len(arrays))
	for i := range arrays {
		bound[i] = p.BindArray(&arrays[i], types[i])
	}
	return strings.Join(bound, ", ")
}

// withKeys returns the condition that a row has one of the keys and topics.
func (r *Relation) withKeys(p *Params, scopes []outbox.Scope) string {
	if r.Table.Mapping.Key == nil {
		return ""
	}
	expression, sqlType, encode := r.key()
	var keys, topics Array
	for _, s := range scopes {
		if key, ok := encode(s.Key); ok && validText(s.Topic) {
			keys.Add(key)
			topics.Add(s.Topic)
		}
	}
	if len(keys.elements) == 0 {
		return ""
	}
	list := among(p, []string{expression, r.topic()}, []Array{keys, topics}, []string{sqlType, "text"})
	return "(" + expression + " IS NOT NULL AND " + list + ")"
}

// key returns the record key as an expression. It is the key column in its own type if equal values there are
// equal record keys, so that an index serves it. encode turns a record key back into that type's text; false:
// no row can have that key.
func (r *Relation) key() (expression, sqlType string, encode func(string) (string, bool)) {
	m := r.Table.Mapping.Key
	c := r.Column(m.Column)
	switch {
	case !m.Plain() && m.Encoding == outbox.EncodingUUID:
		return "lower(" + r.first(m, (*Column).word) + ")", "text", uuidText
	case !m.Plain():
		return r.keyText(), "text", func(key string) (string, bool) { return key, validText(key) }
	case m.Encoding == outbox.EncodingInt64:
		return Ref(c.Name), c.Type, c.int64Text
	case m.Encoding == outbox.EncodingRFC3339:
		return Ref(c.Name), c.Type, rfc3339Text
	case m.Encoding == outbox.EncodingUUID && c.OID == oidUUID:
		return Ref(c.Name), "uuid", uuidText
	case m.Encoding == outbox.EncodingUUID:
		return "lower(rtrim(" + Ref(c.Name) + "::text))", "text", uuidText
	case c.OID == oidBytea:
		return Ref(c.Name), "bytea", func(key string) (string, bool) { return `\x` + hex.EncodeToString([]byte(key)), true }
	case c.Exact && c.OID != oidBpchar:
		return Ref(c.Name), c.Type, func(key string) (string, bool) { return key, c.fits(key) }
	}
	return c.printed(), "text", func(key string) (string, bool) { return key, validText(key) }
}

// keyText returns the text of a key that is not a plain column.
func (r *Relation) keyText() string {
	m := r.Table.Mapping.Key
	if m.Parts == nil {
		return r.first(m, (*Column).printed)
	}
	var parts []string
	for i, literal := range m.Parts.Literals {
		if i > 0 {
			parts = append(parts, r.Column(m.Parts.Columns[i-1].Column).word())
		}
		parts = append(parts, sql.Literal(literal)+"::text")
	}
	return "(" + strings.Join(parts, " || ") + `) COLLATE "C"`
}

// int64Text returns the number in a key of 8 bytes.
func (c *Column) int64Text(key string) (string, bool) {
	if len(key) != 8 {
		return "", false
	}
	text := strconv.FormatInt(int64(binary.BigEndian.Uint64([]byte(key))), 10)
	return text, c.fits(text)
}

// rfc3339Text checks a key that is a time. PostgreSQL reads such a text directly.
func rfc3339Text(key string) (string, bool) {
	t, err := time.Parse(time.RFC3339Nano, key)
	return key, err == nil && t.Year() > 0 && t.UTC().Format(time.RFC3339Nano) == key && t.Nanosecond()%1000 == 0
}

func uuidText(key string) (string, bool) {
	if len(key) != 16 {
		return "", false
	}
	h := hex.EncodeToString([]byte(key))
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], true
}

// topic returns the row's topic as an expression that is never NULL.
func (r *Relation) topic() string {
	t := &r.Table.Mapping.Topic
	var parts []string
	for i, literal := range t.Literals {
		if i > 0 {
			parts = append(parts, "coalesce("+r.named(&t.Columns[i-1])+", '')")
		}
		if literal != "" || len(t.Columns) == 0 {
			parts = append(parts, sql.Literal(literal)+"::text")
		}
	}
	return "(" + strings.Join(parts, " || ") + `) COLLATE "C"`
}

// onCluster returns the condition that a row goes to the cluster.
func (r *Relation) onCluster(p *Params, cluster string) string {
	m := &r.Table.Mapping.Cluster
	if m.Column == "" || len(m.Known) == 0 {
		return strconv.FormatBool(cluster == m.Default)
	}
	word := r.Column(m.Column).word()
	return "CASE WHEN " + word + " IN (" + joined(m.Known, ", ", sql.Literal) + ") THEN " + word +
		" ELSE " + sql.Literal(m.Default) + "::text END = " + p.Bind([]byte(cluster), "text")
}

// word returns the column as text in the way names are read: without the blanks that pad character(n). NULL
// stays NULL.
func (c *Column) word() string {
	if c.OID == oidBpchar {
		return Ref(c.Name) + `::text COLLATE "C"` // the cast removes the blanks
	}
	return c.printed()
}

// printed returns the column as its type prints it. NULL stays NULL. A cast to text prints some types
// differently (boolean, inet, character(n)), and a user-defined type through any function that its owner
// chose.
func (c *Column) printed() string {
	if c.Exact && c.OID != oidBpchar && c.OID != oidBytea {
		return Ref(c.Name) + `::text COLLATE "C"`
	}
	return formatted(Ref(c.Name), `COLLATE "C" `)
}

// formatted prints a value by format(), which calls the type's output function, as the WAL does, and no cast.
// NULL stays NULL.
func formatted(value, collate string) string {
	// IS NOT NULL is false for a composite value that contains a NULL.
	return "CASE WHEN " + value + " IS DISTINCT FROM NULL THEN format('%s', " + value + ") " + collate + "END"
}

// fits reports whether a text can be a value of the column's type. A key or an id that was parked under
// another mapping must not make a statement fail.
func (c *Column) fits(text string) bool {
	switch c.OID {
	case oidInt2, oidInt4, oidInt8:
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && n >= -c.greatest()-1 && n <= c.greatest()
	case oidUUID:
		plain := strings.ReplaceAll(text, "-", "")
		_, err := hex.DecodeString(plain)
		return err == nil && len(plain) == 32 && len(text) == 36
	}
	return validText(text)
}

func validText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
