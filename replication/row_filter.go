package replication

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// FilterFit says how a publication's row filter fits a table.
type FilterFit uint8

// The fits.
const (
	// FilterFits: the filter passes the rows that it should: every row, or those that a row filter can
	// select.
	FilterFits FilterFit = iota
	// FilterMissing: the filter passes other rows too. The decoder drops them, which only costs time.
	FilterMissing
	// FilterDiffers: the filter may hold back rows of this stream.
	FilterDiffers
)

// FilterFit compares the publication's filter with the wanted one. A filter may pass rows that the decoder
// drops anyway.
func (t *TableState) FilterFit() FilterFit {
	share := t.Table.Filter("")
	switch {
	case normalFilter(t.RowFilter) == normalFilter(t.Filter()):
		return FilterFits
	case !outbox.SameFilter(t.RowFilter, share):
		return FilterDiffers
	case t.Filter() != "("+share+")":
		return FilterMissing
	}
	return FilterFits
}

// Refilters reports whether the publication's filter of the table has to be replaced, and can be without
// losing rows.
func (t *TableState) Refilters(s *State) bool {
	p := &s.Publication
	member := strings.Contains(p.Mark+" ", fmt.Sprintf("=%d ", t.OID)) // listed by itself, not through its schema
	return p.Ours && t.Published && member && t.Table.Stateful() && t.FilterFit() != FilterFits
}

// Filter is the row filter that the publication should have for the table, as the server prints it. It joins
// the condition of the share with those conditions of the mapping that a row filter can express; the decoder
// checks the others. Empty: every row passes.
// https://www.postgresql.org/docs/current/logical-replication-row-filter.html#LOGICAL-REPLICATION-ROW-FILTER-EXPRESSIONS
func (t *TableState) Filter() string {
	var terms []string
	if share := t.Table.Filter(""); share != "" {
		terms = append(terms, "("+share+")")
	}
	m := &t.Table.Mapping
	for i := range m.Rows {
		terms = append(terms, t.rowTerm(&m.Rows[i]))
	}
	if e := m.LeavesToOthers(); e != nil && len(e.Pointer) == 0 && len(e.Or) == 0 {
		terms = append(terms, t.knownTerm(e))
	}
	terms = slices.DeleteFunc(terms, func(term string) bool { return term == "" })
	if len(terms) < 2 {
		return strings.Join(terms, "")
	}
	return "(" + strings.Join(terms, " AND ") + ")"
}

// rowTerm returns a condition of the mapping as SQL; "" if a row filter cannot express it.
func (t *TableState) rowTerm(c *outbox.RowCondition) string {
	ways, ok := t.equalities(c.Column, c.Values)
	if c.Null {
		ways = append(ways, "("+sql.Identifier(c.Column)+" IS NULL)")
	}
	switch {
	case !ok || len(ways) == 0:
		return ""
	case c.Not:
		return "(" + anyOf(ways) + " IS NOT TRUE)"
	}
	return anyOf(ways)
}

// knownTerm returns the condition that the map of topics has the column's value; "" if a row filter cannot
// express it.
func (t *TableState) knownTerm(e *outbox.Expr) string {
	ways, ok := t.equalities(e.Column, slices.Sorted(maps.Keys(e.Map.Exact)))
	column := sql.Identifier(e.Column)
	if t.Types[e.Column] != pgtype.TextOID {
		column = "(" + column + ")::text"
	}
	textual := slices.Contains([]uint32{pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID}, t.Types[e.Column])
	for _, b := range e.Map.Beginnings {
		ok = ok && ascii(b.With) && textual
		ways = append(ways, "starts_with("+column+", "+sql.Literal(b.With)+"::text)")
	}
	if !ok || len(ways) == 0 {
		return ""
	}
	return anyOf(ways)
}

func anyOf(ways []string) string {
	if len(ways) == 1 {
		return ways[0]
	}
	return "(" + strings.Join(ways, " OR ") + ")"
}

// equalities returns comparisons of a column with those of the values that its type can hold. ok is false
// where a row filter cannot express them.
func (t *TableState) equalities(column string, values []string) (ways []string, ok bool) {
	write, ok := literals[t.Types[column]]
	if !ok {
		return nil, false
	}
	left := sql.Identifier(column)
	if t.Types[column] == pgtype.VarcharOID {
		left = "(" + left + ")::text"
	}
	for _, v := range values {
		if !ascii(v) { // the database's encoding may lack the character
			return nil, false
		}
		if literal := write(v); literal != "" {
			ways = append(ways, "("+left+" = "+literal+")")
		}
	}
	return ways, true
}

func ascii(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c == 0 || c > '~' })
}

// literals writes a value of each column type as the server prints it, or "" where the type cannot hold the
// value. Other types, user-defined ones included, cannot stand in our row filters.
var literals = map[uint32]func(string) string{
	pgtype.TextOID:    func(v string) string { return sql.Literal(v) + "::text" },
	pgtype.VarcharOID: func(v string) string { return sql.Literal(v) + "::text" },
	pgtype.BPCharOID:  func(v string) string { return sql.Literal(strings.TrimRight(v, " ")) + "::bpchar" },
	pgtype.Int2OID:    integerLiteral(16),
	pgtype.Int4OID:    integerLiteral(32),
	pgtype.Int8OID:    integerLiteral(64),
	pgtype.UUIDOID:    uuidLiteral,
	pgtype.BoolOID:    boolLiteral,
}

func integerLiteral(bits int) func(string) string {
	return func(v string) string {
		n, err := strconv.ParseInt(v, 10, bits)
		switch {
		case err != nil || strconv.FormatInt(n, 10) != v:
			return ""
		case n != int64(int32(n)): // #nosec G115 -- to see whether it fits
			return "'" + v + "'::bigint"
		case n < 0:
			return "'" + v + "'::integer"
		}
		return v
	}
}

var printedUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func uuidLiteral(v string) string {
	if !printedUUID.MatchString(v) {
		return ""
	}
	return "'" + v + "'::uuid"
}

func boolLiteral(v string) string {
	switch {
	case v == "t" || strings.EqualFold(v, "true"):
		return "true"
	case v == "f" || strings.EqualFold(v, "false"):
		return "false"
	}
	return ""
}

// filterTokens matches the literals, names and blanks of a condition.
var filterTokens = regexp.MustCompile(`E?'(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z_][A-Za-z0-9_$]*|\s+`)

// normalFilter writes a condition in a normal form, so that ours and the server's can be compared: every name
// is quoted, blanks are removed, and a backslash in a literal stands for itself.
func normalFilter(condition string) string {
	return filterTokens.ReplaceAllStringFunc(condition, func(token string) string {
		switch {
		case strings.HasPrefix(token, "E'"):
			return strings.ReplaceAll(token[1:], `\\`, `\`)
		case token[0] == '\'' || token[0] == '"':
			return token
		case strings.TrimSpace(token) == "":
			return ""
		}
		return `"` + token + `"`
	})
}
