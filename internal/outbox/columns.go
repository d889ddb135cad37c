package outbox

// Use is what a mapped column is used for. A column may have several uses.
type Use uint16

// The uses.
const (
	UseID      Use = 1 << iota
	UseOrder       // rows are swept by it
	UseRows        // it tells our rows
	UseCluster     // it names the Kafka cluster
	UseTopic       // the topic is made of it
	UseKey         // the key is made of it
	UseRecord      // the rest of the record is made of it
	UseTime        // when the row was created, and when it is due
	UseState       // it says which rows are pending
	UseBudget      // attempts, and how many there may be
	UseMark        // marks write it

	UseAny Use = 1<<iota - 1
)

// Columns names the mapped columns that have any of the uses. One with several places in the mapping
// may come several times.
func (m *Mapping) Columns(of Use) (names []string) {
	add := func(uses Use, columns ...string) {
		for _, name := range columns {
			if name != "" && uses&of != 0 {
				names = append(names, name)
			}
		}
	}
	add(UseID, m.ID...)
	add(UseOrder, m.Order...)
	s := &m.Status
	add(UseState|UseMark, s.Column, s.SentAt, s.FailedAt)
	add(UseBudget|UseMark, s.Attempts)
	add(UseMark, s.LastError, s.Version)
	add(UseState|UseMark, s.Resend)
	add(UseMark, s.TouchedAt, s.ExpiresAt)
	add(UseBudget, s.MaxAttemptsColumn)
	add(UseState, s.SentBy...)
	add(UseTime, m.CreatedAt, m.Writer.Column, m.Writer.Until)
	add(UseTime, m.AvailableAfter...)
	for i := range m.Rows {
		add(UseRows, m.Rows[i].Column)
	}
	add(UseCluster, m.Cluster.Column)
	for i := range m.Topic.Columns {
		add(UseTopic, m.Topic.Columns[i].Names()...)
	}
	if m.Key != nil {
		add(UseKey, m.Key.Names()...)
	}
	add(UseRecord, m.Payload.Names()...)
	add(UseRecord, m.Partition, m.Timestamp)
	add(UseRecord, m.EventID.Columns...)
	for i := range m.Headers {
		e := m.Headers[i].Expr()
		add(UseRecord, e.Names()...)
		if t := m.Headers[i].Trace; t != nil {
			add(UseRecord, t.TraceIDHigh, t.TraceID, t.SpanID, t.Sampled)
		}
	}
	return names
}
