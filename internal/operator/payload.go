package operator

import (
	"strconv"

	"github.com/jackc/pgx/v5/pgtype"
)

// PayloadOf is a listed row's payload as its record has it; nil: it was not
// listed, or is NULL. Listings print bytea in PostgreSQL's escape format.
// https://www.postgresql.org/docs/current/functions-binarystring.html
func (t *Table) PayloadOf(r *Row) []byte {
	if r.Payload == nil {
		return nil
	}
	if t.relation.Column(t.relation.Table.Mapping.Payload.Column).OID != pgtype.ByteaOID {
		return []byte(*r.Payload)
	}
	return unescape(*r.Payload)
}

// unescape reads bytea's escape format: \\ and three octal digits.
func unescape(text string) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) && text[i+1] != '\\' {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		if text[i] == '\\' && i+1 < len(text) && text[i+1] == '\\' {
			i++
		}
		out = append(out, text[i])
	}
	return out
}
