package outbox

import (
	"fmt"
	"strings"
)

// Share is one of the parts into which streams split a table's rows, by a hash of the key. Every row belongs
// to exactly one part. All rows of a key belong to the same part.
type Share struct {
	Part int // counts from 1
	Of   int // number of parts; 0: the table is not split
}

// String returns the share in words.
func (s Share) String() string { return fmt.Sprintf("part %d of %d", s.Part, s.Of) }

// ShareColumn returns the column whose hash decides: the key's column, or the first ID column where records
// have no key.
func (t *Table) ShareColumn() string {
	if t.Mapping.Key != nil {
		return t.Mapping.Key.Column
	}
	return t.Mapping.ID[0]
}

// Filter returns the SQL condition for rows of the table's share. The prefix, such as the table's name and a
// dot, comes before the column. An empty result: every row belongs to the share.
//
// The condition is fit for the WHERE clause of a publication. Such a clause allows only immutable functions
// of the server itself, no casts to text, and no user-defined types or collations. hash_array accepts any
// type that can be hashed, and NULL.
// https://www.postgresql.org/docs/current/logical-replication-row-filter.html
func (t *Table) Filter(prefix string) string {
	if t.Share.Of == 0 {
		return ""
	}
	column := prefix + `"` + strings.ReplaceAll(t.ShareColumn(), `"`, `""`) + `"`
	return fmt.Sprintf("((hash_array(ARRAY[%s]) & 2147483647) %% %d) = %d", column, t.Share.Of, t.Share.Part-1)
}

// SameFilter reports whether two conditions are equal apart from blanks, parentheses and quotes. The server
// prints a condition of Filter with such differences.
func SameFilter(a, b string) bool { return bare.Replace(a) == bare.Replace(b) }

// HasFilter reports whether a publication's condition is the share's, alone or joined with further conditions
// by AND.
func HasFilter(condition, share string) bool {
	return SameFilter(condition, share) || strings.HasPrefix(bare.Replace(condition), bare.Replace(share)+"AND")
}

var bare = strings.NewReplacer(" ", "", "(", "", ")", "", `"`, "", "pg_catalog.", "")
