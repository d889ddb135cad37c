package tablesql

import (
	"fmt"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A statement has as many parameters as it has lists, however long these are: the
// protocol counts them in 16 bits.
func TestListsAreOneParameterEach(t *testing.T) {
	r := &Relation{
		Table: &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
			ID: []string{"part", "id"}, Topic: outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}}, Key: &outbox.Expr{Column: "key"},
			Cluster: outbox.ClusterMapping{Column: "cluster", Default: "a", Known: []string{"a", "b"}},
		}},
		Columns: []Column{
			{Name: "part", OID: oidText, Type: "text", Exact: true},
			{Name: "id", OID: oidInt8, Type: "bigint", Exact: true},
			{Name: "topic", OID: oidText, Type: "text", Exact: true},
			{Name: "key", OID: oidText, Type: "text", Exact: true},
			{Name: "cluster", OID: oidText, Type: "text", Exact: true},
		},
	}
	var p Params
	var scopes []outbox.Scope
	var ids []string
	for i := range 100_000 {
		n := fmt.Sprint(i)
		row := &outbox.Row{Table: r.Table, ID: outbox.JoinID("p", n), Topic: "t" + n, Key: []byte(n)}
		unkeyed := *row
		unkeyed.Key = nil
		scopes = append(scopes, outbox.TopicScope("a", row.Topic), outbox.TopicScope("b", row.Topic), outbox.KeyScope(row), outbox.KeyScope(&unkeyed))
		ids = append(ids, row.ID)
	}
	if condition, all := r.covering(&p, scopes); condition == "" || all {
		t.Fatal("nothing is covered")
	}
	if r.amongIDs(&p, ids) == "" {
		t.Fatal("no id is left")
	}
	// Both clusters' names and topics, keys and their topics, rows' ids, ids.
	if len(p.values) != 10 {
		t.Errorf("%d parameters", len(p.values))
	}
}
