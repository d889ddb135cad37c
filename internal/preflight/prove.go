package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// proving are the checks that a process has to pass once after its start before it counts as ready. They fail
// only for a wrong configuration, role or table, whatever the load, the backlog and other processes. Without
// wal_level = logical the table is swept.
var proving = []string{
	"connection", "server-version", "primary", "pooler", "share", "schema", "streaming-role",
	"table-privileges", "table", "columns", "writes", "identity", "row-security", "status-values", "shedlock",
	"kafka-version", "topics", "topic-acl", "idempotent-write",
	"tally", "journal", "transactions",
}

// Prove finds out whether a stream can work as it is configured. lacking says why not; empty: it can. Topics
// that only rows name are not examined. differences are those of all tables from their mappings, not only
// what keeps the stream from working. err names a table that could not be compared.
func Prove(ctx context.Context, s *Stream, o Options) (lacking string, differences []Difference, err error) {
	f := gather(ctx, s, o.withDefaults(), true)
	differences, err = f.differences()
	return unproven(f), differences, err
}

// unproven is the judgment of Prove. It is a pure function.
func unproven(f *Facts) string {
	var constant []string // the topics that mappings name
	for i := range f.Stream.Tables {
		for cluster := range f.Stream.Kafka {
			for _, topic := range topicsOn(cluster, &f.Stream.Tables[i].Mapping, nil) {
				constant = append(constant, "topic "+topic+" on "+cluster)
			}
		}
	}
	for _, c := range checks() {
		if !slices.Contains(proving, c.name) {
			continue
		}
		ofTopics := c.name == "topics" || c.name == "topic-acl"
		for _, found := range f.judgedBy(&c) {
			if found.Level == Fail && !found.Unseen && (!ofTopics || slices.Contains(constant, found.Subject)) {
				return fmt.Sprintf("check %s: %s", strings.TrimSuffix(found.Check+" ("+found.Subject+")", " ()"), found.Found)
			}
		}
	}
	return f.unseen()
}

// unseen returns who should have answered and did not.
func (f *Facts) unseen() string {
	for i := range f.Tables {
		t := &f.Tables[i]
		if len(t.Lockers) > 0 {
			return fmt.Sprintf("table %s: %s", t.Table, replication.LockedBy(t.Lockers))
		}
		if t.Inspection == nil {
			return fmt.Sprintf("table %s could not be looked at: %s", t.Table, t.Missing["table"])
		}
	}
	for i := range f.Kafka {
		c := &f.Kafka[i]
		if c.Err != "" {
			return fmt.Sprintf("Kafka cluster %s: %s", c.Name, c.Err)
		}
		if !slices.ContainsFunc(c.Brokers, func(b BrokerFacts) bool { return b.Advertised && b.Err == nil }) {
			return fmt.Sprintf("Kafka cluster %s: no broker can be reached at the address that it advertises", c.Name)
		}
		if c.Idempotent == nil {
			return fmt.Sprintf("Kafka cluster %s gave no producer id", c.Name)
		}
	}
	return ""
}
