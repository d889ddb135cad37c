package mapping

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"pgregory.net/rapid"
)

func TestJSONHeaders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want []outbox.Header
	}{
		{`{}`, nil},
		{" \t\r\n{ } \n", nil},
		{`{"b": "1", "a": "2", "b": "3"}`, []outbox.Header{h("b", "1"), h("a", "2"), h("b", "3")}},
		{`{"a":""}`, []outbox.Header{h("a", "")}},
		{`{"":"a"}`, []outbox.Header{h("", "a")}},
		{`{"a":null,"b":true,"c":false,"d":-1.50e+10,"e":0}`, []outbox.Header{{Name: "a"}, h("b", "true"), h("c", "false"), h("d", "-1.50e+10"), h("e", "0")}},
		{`{"\u0061\n":"\"\\\/\b\f\n\r\t\u00e4\ud83d\ude00\u0000"}`, []outbox.Header{h("a\n", "\"\\/\b\f\n\r\tä😀\x00")}},
		{`{"ä":"😀"}`, []outbox.Header{h("ä", "😀")}},
	}
	for _, test := range tests {
		got, fault := appendJSONHeaders(nil, []byte(test.text), nil, new(Arena))
		if fault != "" || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v %s, want %v", test.text, got, fault, test.want)
		}
	}
}

func h(name, value string) outbox.Header { return outbox.Header{Name: name, Value: []byte(value)} }

func TestJSONHeadersRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                     "no object at byte 1",
		`null`:                 "no object at byte 1",
		`[]`:                   "no object at byte 1",
		`"a"`:                  "no object at byte 1",
		`{`:                    "no header name at byte 2",
		`{"a"`:                 "no colon after a header name at byte 5",
		`{"a" "b"}`:            "no colon after a header name at byte 6",
		`{"a":`:                "no header value at byte 6",
		`{"a":"b"`:             "no comma or end of the object at byte 9",
		`{"a":"b",}`:           "no header name at byte 10",
		`{"a":"b"} x`:          "something follows the object at byte 11",
		`{"a":"b"}{}`:          "something follows the object at byte 10",
		`{a:"b"}`:              "no header name at byte 2",
		`{"a":{"b":"c"}}`:      "an object as a header's value at byte 6",
		`{"a":["b"]}`:          "an array as a header's value at byte 6",
		`{"a":nul}`:            "no header value at byte 6",
		`{"a":nulll}`:          "no comma or end of the object at byte 10",
		`{"a":NaN}`:            "no header value at byte 6",
		`{"a":+1}`:             "no header value at byte 6",
		`{"a":01}`:             "no comma or end of the object at byte 7",
		`{"a":1.}`:             "a malformed number at byte 8",
		`{"a":-}`:              "a malformed number at byte 7",
		`{"a":1e}`:             "a malformed number at byte 8",
		`{"a":"b`:              "no end of a string at byte 8",
		`{"a":"b\`:             "a malformed escape at byte 8",
		`{"a":"b\"}`:           "no end of a string at byte 11",
		`{"a":"\x"}`:           "a malformed escape at byte 7",
		`{"a":"\u12"}`:         "a malformed escape at byte 7",
		`{"a":"\u12g4"}`:       "a malformed escape at byte 7",
		`{"a":"b\ud800"}`:      "a malformed escape at byte 8",
		`{"a":"\ud800\u0041"}`: "a malformed escape at byte 7",
		`{"a":"\udc00"}`:       "a malformed escape at byte 7",
		"{\"a\":\"\n\"}":       "a control character in a string at byte 7",
		"{\"a\":\"b\"}\x00":    "something follows the object at byte 10",
		"\x00":                 "no object at byte 1",
	} {
		_, fault := appendJSONHeaders(nil, []byte(text), nil, new(Arena))
		if !strings.HasSuffix(string(fault), ": "+want+"; correct the row") {
			t.Errorf("%s: %s, want %s", text, fault, want)
		}
	}
}

// An object longer than a slab of headers.
func TestManyJSONHeaders(t *testing.T) {
	t.Parallel()
	var members []string
	var want []outbox.Header
	for i := range 5 * headersPerSlab {
		members = append(members, fmt.Sprintf(`"name-%d": "value-%d"`, i, i))
		want = append(want, h(fmt.Sprint("name-", i), fmt.Sprint("value-", i)))
	}
	text := "{" + strings.Join(members, ", ") + "}"
	var a Arena
	got, fault := appendJSONHeaders(nil, []byte(text), nil, &a)
	if fault != "" || !reflect.DeepEqual(a.headers(got), want) {
		t.Errorf("%s, %d headers", fault, len(got))
	}
}

// reference reads headers with encoding/json's tokens.
func reference(text []byte) (list []outbox.Header, err error) {
	if !json.Valid(text) {
		return nil, errors.New("no JSON")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, errors.New("no object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch v := value.(type) {
		case nil:
			list = append(list, outbox.Header{Name: name.(string)})
		case json.Delim:
			return nil, errors.New("nested")
		default:
			list = append(list, h(name.(string), fmt.Sprint(v)))
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more")
	}
	return list, nil
}

func agree(t interface{ Fatalf(string, ...any) }, text []byte) {
	got, fault := appendJSONHeaders(nil, text, nil, new(Arena))
	want, err := reference(text)
	if err != nil && fault == "" {
		t.Fatalf("%q was read as %v, but: %v", text, got, err)
	}
	// encoding/json puts U+FFFD for half a surrogate pair; here it is refused.
	if err == nil && fault != "" && !strings.Contains(string(fault), "malformed escape") {
		t.Fatalf("%q was refused: %s", text, fault)
	}
	if fault == "" && !reflect.DeepEqual(got, want) {
		t.Fatalf("%q is %v, want %v", text, got, want)
	}
}

func TestJSONHeadersAgreeWithEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := []byte("{")
		for i := range rapid.IntRange(0, 5).Draw(t, "headers") {
			if i > 0 {
				text = append(text, ',')
			}
			name, _ := json.Marshal(rapid.String().Draw(t, "name"))
			value, _ := json.Marshal(rapid.OneOf(
				rapid.String().AsAny(), rapid.Int().AsAny(), rapid.Float64().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil).AsAny(),
			).Draw(t, "value"))
			text = append(append(append(text, name...), ':'), value...)
		}
		agree(t, append(text, '}'))
	})
}

func FuzzJSONHeaders(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a": "b", "a": null}`, `{"a":-1.5e+10,"b":true}`, `{"\u0061":"\ud83d\ude00\n"}`, `{"a":{}}`, `[1]`, `{"a":"\ud800"}`, `{"a":01}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			_, _ = appendJSONHeaders(nil, text, nil, new(Arena)) // encoding/json changes it
			return
		}
		agree(t, text)
	})
}

// The forms of headers that are no object of strings.
func TestJSONHeaderForms(t *testing.T) {
	t.Parallel()
	list := outbox.JSONHeaders{Name: "Key", Value: "Value"}
	tests := []struct {
		form outbox.JSONHeaders
		text string
		want []outbox.Header
	}{
		{outbox.JSONHeaders{Base64: true}, `{"a": "eA==", "b": null, "c": "", "\u0064": "eA\u003d="}`, []outbox.Header{h("a", "x"), {Name: "b"}, h("c", ""), h("d", "x")}},
		{outbox.JSONHeaders{Nested: true}, `{"a": { "b" : [1,"}"] } , "c":[], "d":1}`, []outbox.Header{h("a", `{ "b" : [1,"}"] }`), h("c", "[]"), h("d", "1")}},
		{outbox.JSONHeaders{Except: []string{"x-*", "id"}}, `{"x-a": {"b":[1]}, "id": 1, "idx": "2", "x": "3"}`, []outbox.Header{h("idx", "2"), h("x", "3")}},
		{outbox.JSONHeaders{Except: []string{"a"}, Base64: true}, `{"a": "?", "b": "eA=="}`, []outbox.Header{h("b", "x")}},
		{list, ` [ ] `, nil},
		{
			list, `[{"Key":"a","Value":"1"},{"Value":2,"more":[{}],"Key":"b"},{"Key":"c"},{"Key":"d","Value":null},{"Key":"e","Value":"x","Key":"f","Value":"y"}]`,
			[]outbox.Header{h("a", "1"), h("b", "2"), {Name: "c"}, {Name: "d"}, h("f", "y")},
		},
		{outbox.JSONHeaders{Name: "Key", Value: "Value", Except: []string{"a*"}, Base64: true}, `[{"Value":{},"Key":"a"},{"Key":"ab"},{"Key":"b","Value":"eA=="}]`, []outbox.Header{h("b", "x")}},
		{list, `[{"K\u0065y":"a","Value":"1"}]`, []outbox.Header{h("a", "1")}},
	}
	for _, test := range tests {
		got, fault := appendJSONHeaders(nil, []byte(test.text), &test.form, new(Arena))
		if fault != "" || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v %s, want %v", test.text, got, fault, test.want)
		}
	}
	for text, form := range map[string]outbox.JSONHeaders{
		`{"a":"?"} is not base64 at byte 6`:              {Base64: true},
		`{"a":1} is not base64 at byte 6`:                {Base64: true},
		`{"a":{"b":}} no value at byte 11`:               {Nested: true},
		`{"a":[1} no comma or end of an object or array`: {Except: []string{"a"}},
		`{} no array at byte 1`:                          list,
		`[1] no object at byte 2`:                        list,
		`[{"Value":"x"}] a header without a name`:        list,
		`[{"Key":1}] no header name at byte 9`:           list,
		`[{"Key":"a","Value":[]}] an array as a header`:  list,
		`[{"Key":"a"}}] no comma or end of the array`:    list,
		`[{"Key":"a"},] no object`:                       list,
		`[{"Key":"a"}] {} something follows`:             list,
	} {
		end := strings.LastIndexAny(text, "}]")
		_, fault := appendJSONHeaders(nil, []byte(text[:end+1]), &form, new(Arena))
		if want := text[end+2:]; !strings.Contains(string(fault), want) {
			t.Errorf("%s: %q, want %q", text[:end+1], fault, want)
		}
	}
	many := "[" + strings.Repeat(`{"Key":"a"},`, MaxHeaders) + `{"Key":"a","Value":""}]`
	if _, fault := appendJSONHeaders(nil, []byte(many), &list, new(Arena)); !saysFirst(string(fault), "has more than 10000 headers") {
		t.Error(fault)
	}
}
