package decoder

import (
	"encoding/binary"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// The functions below write messages as PostgreSQL does.

func be16(b []byte, n int) []byte           { return binary.BigEndian.AppendUint16(b, uint16(n)) }
func be32(b []byte, n uint32) []byte        { return binary.BigEndian.AppendUint32(b, n) }
func be64(b []byte, n uint64) []byte        { return binary.BigEndian.AppendUint64(b, n) }
func cstring(b []byte, s string) []byte     { return append(append(b, s...), 0) }
func text(s string) mapping.Value           { return mapping.Value{Data: []byte(s), Format: mapping.Text} }
func null() mapping.Value                   { return mapping.Value{Format: mapping.Null} }
func col(n string, t uint32) mapping.Column { return mapping.Column{Name: n, OID: t} }

func beginMsg(xid uint32, commit uint64) []byte {
	return be32(be64(be64([]byte{'B'}, commit), 1), xid)
}

func commitMsg(commit, end uint64) []byte {
	return be64(be64(be64([]byte{'C', 0}, commit), end), 1)
}

func relationMsg(id uint32, schema, table string, columns ...mapping.Column) []byte {
	b := cstring(cstring(be32([]byte{'R'}, id), schema), table)
	b = be16(append(b, 'd'), len(columns))
	for _, c := range columns {
		b = be32(be32(cstring(append(b, 0), c.Name), c.OID), 0xFFFFFFFF)
	}
	return b
}

func typeMsg(id uint32, schema, name string) []byte {
	return cstring(cstring(be32([]byte{'Y'}, id), schema), name)
}

func tupleData(b []byte, values []mapping.Value) []byte {
	b = be16(b, len(values))
	for _, v := range values {
		b = append(b, v.Format)
		switch v.Format {
		case mapping.Text, mapping.Binary:
			b = append(be32(b, uint32(len(v.Data))), v.Data...)
		case mapping.LongText:
			b = be32(b, v.Length)
		}
	}
	return b
}

func insertMsg(id uint32, values ...mapping.Value) []byte {
	return tupleData(append(be32([]byte{'I'}, id), 'N'), values)
}

func updateMsg(id uint32, old byte, before, after []mapping.Value) []byte {
	b := be32([]byte{'U'}, id)
	if old != 0 {
		b = tupleData(append(b, old), before)
	}
	return tupleData(append(b, 'N'), after)
}

func deleteMsg(id uint32, old byte, values ...mapping.Value) []byte {
	return tupleData(append(be32([]byte{'D'}, id), old), values)
}

func truncateMsg(ids ...uint32) []byte {
	b := append(be32([]byte{'T'}, uint32(len(ids))), 0)
	for _, id := range ids {
		b = be32(b, id)
	}
	return b
}

func originMsg(name string) []byte { return cstring(be64([]byte{'O'}, 1), name) }

func logicalMsg(prefix, content string) []byte {
	b := cstring(be64([]byte{'M', 0}, 0x100), prefix)
	return append(be32(b, uint32(len(content))), content...)
}

// The OIDs that the tests use.
const (
	oidBytea = 17
	oidInt8  = 20
	oidText  = 25
	oidJSONB = 3802
	oidUUID  = 2950
)

// table is an outbox table id, topic, key, payload, status.
func table(name string) *outbox.Table {
	return &outbox.Table{Schema: "public", Name: name, Mapping: outbox.Mapping{
		ID:        []string{"id"},
		Cluster:   outbox.ClusterMapping{Default: "main"},
		Topic:     outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Key:       &outbox.Expr{Column: "key", Encoding: outbox.EncodingText},
		Payload:   outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
		Published: outbox.PublishedStatus,
		Status:    outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}},
	}}
}

func columns() []mapping.Column {
	return []mapping.Column{col("id", oidInt8), col("topic", oidText), col("key", oidText), col("payload", oidBytea), col("status", oidText)}
}

func values(id string) []mapping.Value {
	return []mapping.Value{text(id), text("orders"), text("k"), text(`\x6869`), text("PENDING")}
}
