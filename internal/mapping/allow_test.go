package mapping

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func TestAllowedTopics(t *testing.T) {
	column := []string{"", ""}
	for _, c := range []struct {
		literals, allow []string
		yes, no         []string
	}{
		{column, nil, []string{"orders", "_x", "a__b"}, []string{"__x", "__consumer_offsets", "__"}},
		{column, []string{"orders", "ship.*"}, []string{"orders", "ship.", "ship.a"}, []string{"orders2", "order", "ship", "__x", ""}},
		{column, []string{"*"}, []string{"orders", "_"}, []string{"__x"}},
		{column, []string{"_*"}, []string{"_a"}, []string{"__x", "a"}},
		{column, []string{"*", "__a"}, []string{"orders", "__a"}, []string{"__ab"}},
		{column, []string{"__a*"}, nil, []string{"__a", "__ab", "__b", "a"}},
		{column, []string{"__*"}, nil, []string{"__a", "__consumer_offsets", "a"}},
		{[]string{"__own.", ""}, nil, nil, []string{"__own.a"}},
		{[]string{"__own.", ""}, []string{"__own.a"}, []string{"__own.a"}, []string{"__own.b"}},
	} {
		l := newTopicList(&outbox.Table{Mapping: outbox.Mapping{Topic: outbox.Template{Literals: c.literals}, TopicAllow: c.allow}})
		for _, topic := range c.yes {
			if !l.has(topic) {
				t.Errorf("%v does not allow %q", c.allow, topic)
			}
		}
		for _, topic := range c.no {
			if l.has(topic) {
				t.Errorf("%v allows %q", c.allow, topic)
			}
		}
	}
}

// A row that names another topic fails alone. Its error says where the topic may be allowed.
func TestForbiddenTopic(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Topic: outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}}, TopicAllow: []string{"orders.*"},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}}, Cluster: outbox.ClusterMapping{Default: "main"}, Published: outbox.PublishedNone,
	}}
	plan, err := Compile(nil, table, []Column{{Name: "id", OID: 20}, {Name: "topic", OID: 25}, {Name: "payload", OID: 17}})
	if err != nil {
		t.Fatal(err)
	}
	var a Arena
	r := plan.Row([]Value{{Data: []byte("1"), Format: Text}, {Data: []byte("payments"), Format: Text}, {Data: []byte("x"), Format: Binary}}, &a)
	const want = `column "topic" gives the topic "payments", which topic.allow of table public.outbox does not allow: add it there, or correct the row`
	if r.Err == nil || r.Err.Error() != want || r.Topic != "payments" {
		t.Errorf("%v of topic %q", r.Err, r.Topic)
	}
	if r := plan.Row([]Value{{Data: []byte("1"), Format: Text}, {Data: []byte("orders.new"), Format: Text}, {Data: []byte("x"), Format: Binary}}, &a); r.Err != nil {
		t.Error(r.Err)
	}
}
