package decoder

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// model is a slow decoder upon pglogrepl's messages. It takes valid messages
// only and prints events as dump does.
type model struct {
	tables    map[string]*outbox.Table // partitions too
	relations map[uint32]*pglogrepl.RelationMessage
	columns   map[uint32][]mapping.Column // as their types were named then
	types     map[uint32]uint32
	broken    map[string]map[uint32]bool // by table, then relation
	told      map[string]string
	unmapped  map[string]bool
	tx        outbox.Transaction
	out       []string
	needsText bool // the connection has to end here
}

func newModel(tables map[string]*outbox.Table) *model {
	return &model{
		tables: tables, relations: map[uint32]*pglogrepl.RelationMessage{}, columns: map[uint32][]mapping.Column{}, types: map[uint32]uint32{},
		broken: map[string]map[uint32]bool{}, told: map[string]string{}, unmapped: map[string]bool{},
	}
}

func (m *model) take(message pglogrepl.Message) {
	switch msg := message.(type) {
	case *pglogrepl.BeginMessage:
		m.tx = outbox.Transaction{XID: msg.Xid, Commit: outbox.LSN(msg.FinalLSN), Time: msg.CommitTime.UnixMicro()}
		m.say(Event{Kind: Begin, Transaction: m.tx}.String())
	case *pglogrepl.CommitMessage:
		m.tx.End = outbox.LSN(msg.TransactionEndLSN)
		m.say(Event{Kind: Commit, Transaction: m.tx}.String())
	case *pglogrepl.TypeMessage:
		delete(m.types, msg.DataType)
		if base := mapping.BuiltinOID(msg.Name); base != 0 && (msg.Namespace == "" || msg.Namespace == "pg_catalog") {
			m.types[msg.DataType] = base
		}
	case *pglogrepl.RelationMessage:
		m.relation(msg)
	case *pglogrepl.InsertMessage:
		m.insert(msg)
	}
}

func (m *model) say(line string) { m.out = append(m.out, line) }

func qualified(r *pglogrepl.RelationMessage) string {
	return cmp.Or(r.Namespace, "pg_catalog") + "." + r.RelationName
}

func (m *model) columnsOf(r *pglogrepl.RelationMessage) []mapping.Column {
	var cols []mapping.Column
	for _, c := range r.Columns {
		oid := c.DataType
		if base, ok := m.types[oid]; ok {
			oid = base
		}
		cols = append(cols, mapping.Column{Name: c.Name, OID: oid})
	}
	return cols
}

func (m *model) relation(r *pglogrepl.RelationMessage) {
	t := m.tables[qualified(r)]
	for id, old := range m.relations {
		if id != r.RelationID && qualified(old) != qualified(r) {
			continue
		}
		delete(m.relations, id)
		if was := m.tables[qualified(old)]; was != nil && m.broken[was.String()][id] {
			delete(m.broken[was.String()], id)
			if was != t {
				m.tell(was, nil)
			}
		}
	}
	m.relations[r.RelationID], m.columns[r.RelationID] = r, m.columnsOf(r)
	if t == nil {
		return
	}
	_, err := mapping.Compile(nil, t, m.columns[r.RelationID])
	if m.broken[t.String()] == nil {
		m.broken[t.String()] = map[uint32]bool{}
	}
	if err != nil {
		m.broken[t.String()][r.RelationID] = true
	}
	m.tell(t, err)
}

func (m *model) tell(t *outbox.Table, err error) {
	news := Event{Kind: TableMapped, Table: t}.String()
	if len(m.broken[t.String()]) > 0 {
		if err == nil {
			return
		}
		news = Event{Kind: TableBroken, Table: t, Err: err}.String()
	}
	if m.told[t.String()] != news {
		m.told[t.String()] = news
		m.say(news)
	}
}

func (m *model) insert(msg *pglogrepl.InsertMessage) {
	r := m.relations[msg.RelationID]
	t := m.tables[qualified(r)]
	if t == nil {
		if key := fmt.Sprint(msg.RelationID, qualified(r)); !m.unmapped[key] {
			m.unmapped[key] = true
			m.say("unmapped " + qualified(r))
		}
		return
	}
	if len(m.broken[t.String()]) > 0 {
		m.say("passed a row of " + t.String())
		return
	}
	plan, err := mapping.Compile(nil, t, m.columns[r.RelationID])
	if err != nil {
		panic(err)
	}
	var values []mapping.Value
	for _, i := range plan.Wanted() {
		c := msg.Tuple.Columns[i]
		values = append(values, mapping.Value{Data: c.Data, Format: c.DataType})
		if c.DataType == mapping.Binary && plan.Binary() != nil {
			m.needsText = true
			return
		}
	}
	row := plan.Row(values, new(mapping.Arena))
	row.XID, row.Commit, row.CommitTime = m.tx.XID, m.tx.Commit, m.tx.Time
	m.say(dumpRow(row))
}

// dump prints events with everything in them, one row or passed row a line.
func dump(b *Batch) []string {
	var out []string
	for e := range b.All() {
		switch e.Kind {
		case Rows:
			for _, r := range e.Rows {
				out = append(out, dumpRow(r))
			}
		case Passed:
			for range e.Count {
				out = append(out, "passed a row of "+e.Table.String())
			}
		default:
			out = append(out, e.String())
		}
	}
	return out
}

func dumpRow(r *outbox.Row) string {
	headers := make([]string, 0, len(r.Headers))
	for _, h := range r.Headers {
		headers = append(headers, fmt.Sprintf("%q=%s", h.Name, dumpBytes(h.Value)))
	}
	return fmt.Sprintf(
		"row %q of %s in %d/%s: pending %v, cluster %q, topic %q, key %s, value %s, headers [%s], partition %d, times %d %d %d, error %v",
		r.ID, r.Table, r.XID, r.Commit, r.Pending, r.Cluster, r.Topic, dumpBytes(r.Key), dumpBytes(r.Value),
		strings.Join(headers, " "), r.Partition, r.Timestamp, r.CreatedAt, r.AvailableAt, r.Err,
	)
}

func dumpBytes(b []byte) string {
	if b == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", b)
}
