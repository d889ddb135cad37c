package mapping

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// The texts are those that java.util.Properties stores, and others that its method load accepts.
func TestProperties(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]outbox.Header{
		"": nil,
		"#Mon Nov 23 17:00:00 UTC 2026\ntraceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\nbaggage=a\\=b,c\\:d\n": {
			h("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), h("baggage", "a=b,c:d"),
		},
		"  ! comment = no\r\n\r\n\t\n a : b \r c\f=  = d\n": {h("a", "b "), h("c", "= d")},
		"a b = c\nd\ne=\nf\\ g=\\ h\n=x":                    {h("a", "b = c"), h("d", ""), h("e", ""), h("f g", " h"), h("", "x")},
		"a  =  : b":                                         {h("a", ": b")},
		"a=1,\\\n   2,\\\r\n\t3\\\n\nb=4\\\\\nc=5\\":        {h("a", "1,2,3"), h("b", `4\`), h("c", "5")},
		"a\\\n  b=c\n#x\\\nd=e":                             {h("ab", "c"), h("d", "e")},
		`a=\t\n\r\f\q\"\u00e9\uD83D\uDE00\u0000é😀`:          {h("a", "\t\n\r\fq\"é😀\x00é😀")},
		"\\\n\na=b\n\\\r#no\n\\\n\\\r\n c=d":                {h("a", "b"), h("c", "d")},
		"a=1\\\r":                                           {h("a", "1")}, "a=1\\\rb=2": {h("a", "1b=2")}, "a\\=b\\:c=d": {h("a=b:c", "d")}, "a\\ b c": {h("a b", "c")},
		"a=1\na=2": {h("a", "1"), h("a", "2")},
	} {
		got, fault := appendProperties(nil, slices.Clip([]byte(text)), &outbox.JSONHeaders{}, new(Arena))
		if fault != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q %s, want %q", text, got, fault, want)
		}
	}
	for _, text := range []string{`a=\u00e`, `a=\u00g0`, `a=\ud83d`, `a=\ud83dx`, `a=\ude00\ud83d`, `\u`, `a=\u+123`, `a=\ud83d\`, `a=\ud83d\xde00`, `a=\ud83dxude00`, `a=\u00e9\ud83d`} {
		if got, fault := appendProperties(nil, slices.Clip([]byte(text)), &outbox.JSONHeaders{}, new(Arena)); fault == "" {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got, _ := appendProperties(nil, []byte("uber-a=1\nb=2"), &outbox.JSONHeaders{Except: []string{"uber-*"}}, new(Arena)); len(got) != 1 || got[0].Name != "b" {
		t.Errorf("%q", got)
	}
}

// A bytea column of properties is no JSON, and is not called so.
func TestPropertiesThatAreNoText(t *testing.T) {
	t.Parallel()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
		Headers: []outbox.HeaderMapping{{JSON: "context", Form: &outbox.JSONHeaders{Properties: true}}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}}, Published: outbox.PublishedDelete,
	}}
	plan, err := Compile(nil, table, []Column{{Name: "id", OID: oidInt8}, {Name: "context", OID: oidBytea}})
	if err != nil {
		t.Fatal(err)
	}
	row := plan.Row([]Value{{Data: []byte("7"), Format: Text}, {Data: []byte(`\x613de9`), Format: Text}}, new(Arena))
	if row.Err == nil || !strings.Contains(row.Err.Error(), `column "context" is no text that can be read: it is not UTF-8`) {
		t.Error(row.Err)
	}
}

func TestPropertiesAllocateNextToNothing(t *testing.T) {
	text, arena, list := []byte("traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n"), new(Arena), make([]outbox.Header, 0, 4)
	const rows = 1000
	if perRow := testing.AllocsPerRun(20, func() {
		for range rows {
			if got, fault := appendProperties(list, text, &outbox.JSONHeaders{}, arena); fault != "" || len(got) != 1 {
				t.Fatal(fault)
			}
		}
	}) / rows; perRow >= 0.1 {
		t.Errorf("%.3f allocations per row", perRow)
	}
}

// Every text is read to its end, or refused.
func TestAnyTextAsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a=: \t\f\\u0dDcC8#!\r\n]{0,30}`)).Draw(t, "text")
		got, fault := appendProperties(nil, []byte(text), &outbox.JSONHeaders{}, new(Arena))
		for _, h := range got {
			if h.Value == nil || !utf8.ValidString(h.Name) || !utf8.Valid(h.Value) {
				t.Fatalf("%q: %q %s", text, got, fault)
			}
		}
	})
}
