package outbox

// Use is a purpose that a mapped column serves. A column may serve several.
type Use uint16

// The uses.
const (
	UseID      Use = 1 << iota
	UseOrder       // rows are swept in its order
	UseRows        // it decides which rows are this stream's
	UseCluster     // it names the Kafka cluster
	UseTopic       // the topic is computed from it
	UseKey         // the key is computed from it
	UseRecord      // another part of the record is computed from it
	UseTime        // the creation time, or the time before which the row is not due
	UseState       // it tells pending rows from others
	UseBudget      // the attempts, or the row's own budget
	UseMark        // marks write it

	UseAny Use = 1<<iota - 1
)

// Columns returns the names of the mapped columns that serve any of the given uses. A name may be returned
// several times.
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
