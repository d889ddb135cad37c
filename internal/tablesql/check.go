package tablesql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file looks at a table as a whole, for a check before it is streamed.

// Backlog is the SQL that looks at no more than limit rows which are yet to be
// published: how many there are, the age of the oldest in seconds (NULL without
// a created_at column), and the bytes of the largest payload, key included.
func (r *Relation) Backlog(limit int) string {
	age, created := "NULL", "NULL::timestamptz"
	if r.Table.Mapping.CreatedAt != "" {
		age, created = ageOf("min(created)")+" / 1000000", Ref(r.Table.Mapping.CreatedAt)+"::timestamptz"
	}
	return fmt.Sprintf("SELECT count(*), %s, coalesce(max(bytes), 0) FROM (SELECT %s AS bytes, %s AS created FROM %s t WHERE %s LIMIT %d) waiting",
		age, r.bytes(), created, r.Name(), r.Pending(), limit)
}

// bytes is about what the row's record takes.
func (r *Relation) bytes() string {
	m := &r.Table.Mapping
	names := []string{m.Payload.Column}
	if m.Key != nil {
		names = append(names, m.Key.Column)
	}
	var terms []string
	for _, name := range names {
		if c := r.column(name); c != nil {
			terms = append(terms, "coalesce("+c.size()+", 0)")
		}
	}
	if len(terms) == 0 {
		return "0"
	}
	return strings.Join(terms, " + ")
}

// Destinations is the SQL for what some of the table's rows are for, at most
// limit pending rows and as many others: the Kafka cluster's name (empty: none)
// and the topic.
func (r *Relation) Destinations(limit int) string {
	cluster := "''::text"
	if c := r.Table.Mapping.Cluster.Column; c != "" {
		cluster = "coalesce(" + r.Column(c).word() + ", '')"
	}
	some := fmt.Sprintf("SELECT %s AS cluster, %s AS topic FROM %s t", cluster, r.topic(), r.Name())
	return fmt.Sprintf("SELECT DISTINCT %s, %s FROM ((%s WHERE %s LIMIT %d) UNION ALL (%s WHERE %s LIMIT %d)) sampled WHERE topic <> ''",
		r.asText("cluster"), r.asText("topic"), some, r.Pending(), limit, some, r.ofOurs("true"), limit)
}

// Chosen is the SQL for how many of at most limit rows there are, and how many of
// these are ours by the mapping's conditions; empty where it has none.
func (r *Relation) Chosen(limit int) string {
	ours := r.ours()
	if ours == "" {
		return ""
	}
	return fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE ours) FROM (SELECT %s AS ours FROM %s t LIMIT %d) sampled", ours, r.Name(), limit)
}

// States is the SQL for the values of the status column among at most limit
// rows; empty where there is no such column.
func (r *Relation) States(limit int) string {
	c := r.column(r.Table.Mapping.Status.Column)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("SELECT DISTINCT %s FROM (SELECT %s AS state FROM %s t WHERE %s LIMIT %d) sampled WHERE state IS NOT NULL ORDER BY 1",
		r.asText("state"), c.printed(), r.Name(), r.ofOurs("true"), limit)
}

// Written names the columns that marks write.
func Written(m *outbox.Mapping) []string {
	s := &m.Status
	names := []string{s.Attempts, s.LastError, s.Version, s.FailedAt, s.Resend, s.TouchedAt}
	switch m.Published {
	case outbox.PublishedNone:
		return nil
	case outbox.PublishedStatus:
		names = append(names, s.Column, s.SentAt, s.ExpiresAt)
	case outbox.PublishedDelete:
		names = append(names, s.Column)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
