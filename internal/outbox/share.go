package outbox

import (
	"fmt"
	"strings"
)

// Share is one of the parts that streams of the same table split its rows into,
// by a hash of the key: every row is of exactly one part, and all rows of a key
// are of the same one.
type Share struct {
	Part int // from 1
	Of   int // 0: not split
}

// String is the part in words.
func (s Share) String() string { return fmt.Sprintf("part %d of %d", s.Part, s.Of) }

// ShareColumn is the column whose hash decides: the key's, or the first of the
// id where records have no key.
func (t *Table) ShareColumn() string {
	if t.Mapping.Key != nil {
		return t.Mapping.Key.Column
	}
	return t.Mapping.ID[0]
}

// Filter is the SQL condition that a row is of the table's share, with a prefix
// before the column, such as the table's name and a dot; empty: every row is.
//
// It may be in the WHERE clause of a publication, which allows only immutable
// functions of the server's own and neither casts to text nor types or collations
// of users. hash_array takes any type that can be hashed, and NULL.
// https://www.postgresql.org/docs/current/logical-replication-row-filter.html
func (t *Table) Filter(prefix string) string {
	if t.Share.Of == 0 {
		return ""
	}
	column := prefix + `"` + strings.ReplaceAll(t.ShareColumn(), `"`, `""`) + `"`
	return fmt.Sprintf("((hash_array(ARRAY[%s]) & 2147483647) %% %d) = %d", column, t.Share.Of, t.Share.Part-1)
}

// SameFilter says whether two conditions differ at most as the server's printing
// of a condition differs from Filter's: in blanks, parentheses and quotes.
func SameFilter(a, b string) bool { return bare.Replace(a) == bare.Replace(b) }

// HasFilter says whether a publication's condition is the share's, or that and more.
func HasFilter(condition, share string) bool {
	return SameFilter(condition, share) || strings.HasPrefix(bare.Replace(condition), bare.Replace(share)+"AND")
}

var bare = strings.NewReplacer(" ", "", "(", "", ")", "", `"`, "", "pg_catalog.", "")
