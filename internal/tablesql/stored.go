package tablesql

import (
	"encoding/hex"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file selects text in the database's encoding. If the server cannot convert one character of a result
// to UTF-8, the whole result is an error: one such row would make a whole page unreadable. Package charset
// converts each value separately.

// stored returns the expression to select for a column, and whether its value has to be read by StoredText.
func (r *Relation) stored(c *Column) (expression string, stored bool) {
	// The text of these types is always ASCII.
	if r.Charset == nil || c.is(oidBool, oidBytea, oidInt2, oidInt4, oidInt8, oidUUID, oidTimestamp, oidTimestamptz) {
		return Ref(c.Name), false
	}
	return r.asText(c.printed()), true
}

// asText selects a text as hexadecimal digits in the database's encoding, for StoredText or readText.
func (r *Relation) asText(text string) string {
	if r.Charset == nil {
		return text
	}
	return "convert_to(" + text + ", " + sql.Literal(r.Charset.Name()) + ")"
}

// StoredText reads a value that stored selected. NULL stays nil.
func StoredText(value []byte) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	if len(value) < 2 || value[0] != '\\' || value[1] != 'x' {
		return nil, fmt.Errorf("the server sent %d bytes that are not in hexadecimal", len(value))
	}
	text := make([]byte, hex.DecodedLen(len(value)-2))
	_, err := hex.Decode(text, value[2:])
	return text, err
}

// readID reads the id columns that idList selected, at the beginning of the row.
func (r *Relation) readID(row [][]byte) (parts []string, err error) {
	parts = make([]string, len(r.Table.Mapping.ID))
	for i, name := range r.Table.Mapping.ID {
		text := row[i]
		if _, stored := r.stored(r.Column(name)); stored {
			if text, err = StoredText(text); err != nil {
				return nil, fmt.Errorf("reading an id of table %s: %w", r.Table, err)
			}
			text, _ = r.Charset.AppendExact(nil, text)
		}
		parts[i] = string(text)
	}
	return parts, nil
}

// eachID reads rows that have only the columns of idList.
func (r *Relation) eachID(found func(id string)) func(row [][]byte) error {
	return func(row [][]byte) error {
		parts, err := r.readID(row)
		if err != nil {
			return err
		}
		found(outbox.JoinID(parts...))
		return nil
	}
}

// readText reads a text, meant for people, that asText selected. Bytes that cannot be converted to UTF-8 are
// escaped, so that one bad row does not keep the others from being listed.
func (r *Relation) readText(value []byte) string {
	if r.Charset == nil {
		return string(value)
	}
	text, err := StoredText(value)
	if err != nil {
		return string(value)
	}
	out, _ := r.Charset.Append(nil, text)
	return string(out)
}
