package config

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// binder copies a YAML tree into structs, guided by their field tags: yaml (the key), default, required,
// enum, min and max. The YAML library's own decoder stops at the first fault. binder goes on, reports all
// faults with their positions, and remembers the position of each path for later checks.
type binder struct {
	file     string
	around   surroundings
	anchors  anchors
	at       map[string]position // position of each path that the file has
	problems Problems
	values   int // number of values bound so far
	// nullClears: a null removes what a profile has set. It is true inside mappings; elsewhere a null is a
	// fault.
	nullClears bool
	// written maps the quoted value that replaced a reference to the quoted text with the reference. Messages
	// show the text: a variable may hold a secret where none was expected.
	written map[string]string
	// secretFiles are files that hold secrets. literal has the paths whose secret is written in the
	// configuration file itself.
	secretFiles []string
	credentials []Problem // one per file with a secret: its position, and the file's path as Found
	// asked: some value is still a question. The meaning of other values depends on it, so they are not
	// checked.
	asked   bool
	literal map[string]bool
}

type position struct{ line, column int }

var (
	typeSecret   = reflect.TypeFor[Secret]()
	typeBytes    = reflect.TypeFor[Bytes]()
	typeDuration = reflect.TypeFor[time.Duration]()
	typePath     = reflect.TypeFor[Path]()

	typeCredential = reflect.TypeFor[Credential]()
	typeTemplate   = reflect.TypeFor[Template]()
	typeValue      = reflect.TypeFor[Value]()
	typeTable      = reflect.TypeFor[Table]()
	typeTopic      = reflect.TypeFor[TopicSpec]()
	typeKey        = reflect.TypeFor[KeySpec]()
	typePayload    = reflect.TypeFor[PayloadSpec]()
)

// maxProblems bounds how many faults are reported at once.
const maxProblems = 100

// complain records a problem at the position of the path, or at the nearest known one.
func (b *binder) complain(path, found, hint string) {
	if len(b.problems) >= maxProblems {
		return
	}
	at := b.find(path)
	for expanded, raw := range b.written {
		found = strings.ReplaceAll(found, expanded, raw)
	}
	b.problems = append(b.problems, Problem{
		File: b.file, Line: at.line, Column: at.column, Path: path, Found: found, Hint: hint,
	})
}

// find returns the position of a path. Where the path is not in the file (the value comes from a profile or a
// default), it returns the position of the nearest enclosing path.
func (b *binder) find(path string) position {
	for {
		if at, ok := b.at[path]; ok {
			return at
		}
		cut := max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['))
		if cut < 0 {
			return b.at[""]
		}
		path = path[:cut]
	}
}

// hasProblem reports whether there is a problem at the path or below it.
func (b *binder) hasProblem(path string) bool {
	return slices.ContainsFunc(b.problems, func(p Problem) bool {
		rest, ok := strings.CutPrefix(p.Path, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Question is the prefix of a value that only a person can write. mapping suggest writes it where it does not
// know the value. A file with a question is refused.
const Question = "QUESTION: "

// unanswered returns the question that stands in place of a value, if one does.
func unanswered(n ast.Node) (question string, ok bool) {
	text, _ := scalarText(n)
	return strings.CutPrefix(text, Question)
}

// maxValues bounds the number of values, which aliases can multiply.
const maxValues = 200_000

// bind copies a node into a value. tags are the tags of the value's field.
func (b *binder) bind(to reflect.Value, n ast.Node, path string, tags reflect.StructTag) {
	if b.values++; b.values > maxValues {
		if b.values == maxValues+1 {
			b.complain("", fmt.Sprintf("more than %d values", maxValues), "use fewer aliases")
		}
		return
	}
	n = b.plain(n)
	if _, ok := b.at[path]; !ok {
		b.at[path] = where(n)
	}
	if question, ok := unanswered(n); ok {
		b.asked = true
		b.complain(path, "is still a question: "+question, "write the answer in its place")
		return
	}
	if isNull(n) {
		if !b.nullClears {
			b.complain(path, "has no value", "write "+expected(to.Type(), tags)+", or leave the key out")
			return
		}
		to.SetZero()
		setDefault(to, tags)
		return
	}
	if to.Kind() == reflect.Pointer {
		if to.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
			setDefault(to.Elem(), "")
		}
		b.bind(to.Elem(), n, path, tags)
		return
	}
	switch to.Type() {
	case typeSecret, typeBytes, typeDuration, typePath, typeTemplate, typeValue:
		b.bindScalar(to, n, path, tags)
		return
	case typeCredential:
		b.bindCredential(to, n, path)
		return
	}
	switch to.Kind() {
	case reflect.Struct:
		b.bindStruct(to, n, path)
	case reflect.Map:
		b.bindMap(to, n, path)
	case reflect.Slice:
		b.bindList(to, n, path, tags)
	default:
		b.bindScalar(to, n, path, tags)
	}
}

func (b *binder) bindStruct(to reflect.Value, n ast.Node, path string) {
	pairs, ok := b.pairs(n)
	if !ok {
		b.complain(path, "found "+kind(n), "write keys and values: "+strings.Join(keysOf(to.Type()), ", "))
		return
	}
	switch to.Type() {
	case typeTable:
		b.nullClears = true
		defer func() { b.nullClears = false }()
		if t, ok := reflect.TypeAssert[*Table](to.Addr()); ok {
			b.startFromProfile(t, pairs, path)
		}
	case typeTopic:
		if slices.ContainsFunc(pairs, func(p pair) bool { return p.key != "allow" }) {
			to.SetZero() // there is one source: that of a profile must not remain
			setDefault(to, "")
		}
	case typeKey, typePayload:
		b.oneSource(to, pairs)
	}
	given, misspelled := map[string]bool{}, map[string]bool{}
	for _, p := range pairs {
		at := join(path, p.key)
		b.at[at] = p.at
		field, tags, ok := fieldByKey(to, p.key)
		switch {
		case !ok && to.Type() == reflect.TypeFor[Credential](): // the value may be the secret itself
			b.complain(path, "has a key that is unknown", "write one of "+strings.Join(keysOf(to.Type()), ", ")+", or the text itself")
		case !ok:
			misspelled[nearest(p.key, keysOf(to.Type()))] = true
			b.complain(at, "unknown key "+strconv.Quote(p.key), keyMeant(p.key, keysOf(to.Type())))
		case given[p.key]:
			b.complain(at, "the key is given twice", "keep one of them")
		default:
			given[p.key] = true
			b.bind(field, p.value, at, tags)
		}
	}
	b.requireFields(to, path, given, misspelled)
}

// alternatives lists keys that exclude each other. Each group is a key with the keys that only go with it.
var alternatives = map[reflect.Type][][]string{
	typeKey:     {{"column", "path"}, {"first"}, {"template"}},
	typePayload: {{"column", "path", "decode", "tombstone", "empty_tombstone"}, {"object"}},
}

// oneSource clears the profile's source where the file gives another one.
func (b *binder) oneSource(to reflect.Value, pairs []pair) {
	given := func(source []string) bool {
		return slices.ContainsFunc(pairs, func(p pair) bool { return p.key == source[0] && !isNull(b.plain(p.value)) })
	}
	if !slices.ContainsFunc(alternatives[to.Type()], given) {
		return
	}
	for _, source := range alternatives[to.Type()] {
		if given(source) {
			continue
		}
		for _, key := range source {
			field, tags, _ := fieldByKey(to, key)
			field.SetZero()
			setDefault(field, tags)
		}
	}
}

func (b *binder) requireFields(to reflect.Value, path string, given, misspelled map[string]bool) {
	for key, f := range keyed(to.Type()) {
		if f.Tag.Get("required") != "true" || misspelled[key] && !given[key] {
			continue // otherwise another fault is reported
		}
		at := join(path, key)
		value := to.FieldByIndex(f.Index)
		switch {
		case !given[key]:
			b.complain(at, "is missing", "write "+key+": "+expected(f.Type, f.Tag))
		case isEmpty(value) && !b.hasProblem(at):
			b.complain(at, "is empty", "write "+expected(f.Type, f.Tag))
		}
	}
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		return v.Type() == typeSecret && v.IsZero()
	}
	return v.IsZero()
}

func (b *binder) bindMap(to reflect.Value, n ast.Node, path string) {
	pairs, ok := b.pairs(n)
	if !ok {
		b.complain(path, "found "+kind(n), "write names, each with its keys and values")
		return
	}
	if to.IsNil() {
		to.Set(reflect.MakeMap(to.Type()))
	}
	for _, p := range pairs {
		at := join(path, p.key)
		b.at[at] = p.at
		value := reflect.New(to.Type().Elem()).Elem()
		b.bind(value, p.value, at, "")
		to.SetMapIndex(reflect.ValueOf(p.key), value)
	}
}

func (b *binder) bindList(to reflect.Value, n ast.Node, path string, tags reflect.StructTag) {
	items := []ast.Node{n} // a list of one element may be written without brackets
	if seq, ok := n.(*ast.SequenceNode); ok {
		items = seq.Values
	} else if !isText(to.Type().Elem()) {
		b.complain(path, "found "+kind(n), "write a list: a line beginning with - for each")
		return
	}
	list := reflect.MakeSlice(to.Type(), len(items), len(items))
	for i, item := range items {
		at := path
		if len(items) > 1 || n != item {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		item = b.plain(item)
		b.at[at] = where(item)
		element := list.Index(i)
		if isNull(item) {
			if element.Type() == typeValue {
				element.Set(reflect.ValueOf(Value{Null: true}))
			} else {
				b.complain(at, "has no value", "write "+expected(element.Type(), "")+", or remove the item")
			}
			continue
		}
		if element.Kind() == reflect.Struct {
			setDefault(element, "")
		}
		b.bind(element, item, at, tags)
	}
	to.Set(list)
}

func isText(t reflect.Type) bool { return t.Kind() == reflect.String || t == typeValue }

// ---- scalars ----

func (b *binder) bindScalar(to reflect.Value, n ast.Node, path string, tags reflect.StructTag) {
	raw, ok := scalarText(n)
	if !ok {
		b.complain(path, "found "+kind(n), "write "+expected(to.Type(), tags))
		return
	}
	parts, err := splitReferences(raw)
	if err != nil {
		b.complain(path, err.Error(), "")
		return
	}
	if to.Type() == typeTemplate {
		t, err := b.around.template(parts)
		if err != nil {
			b.complain(path, err.Error(), "")
		}
		to.Set(reflect.ValueOf(Template{t}))
		return
	}
	if to.Type() == typeSecret && slices.ContainsFunc(parts, part.isNone) { // such text is part of the secret
		b.complain(path, "has a ${…} that is no reference", "write ${env:NAME}, ${file:PATH}, or $${ for the text ${")
		return
	}
	text, err := b.around.text(parts)
	if err != nil {
		b.complain(path, err.Error(), "")
		return
	}
	if to.Type() == typeSecret {
		b.noteSecret(parts, path)
	}
	// Messages show the text as the file has it. For a reference they show the reference, never the value.
	// Secrets are never shown, because any text may be one.
	shown := strconv.Quote(raw)
	if text != raw && to.Kind() == reflect.String {
		b.written[strconv.Quote(text)] = shown
	}
	if to.Type() == typePath && text != "" {
		text = b.around.absolute(text)
	}
	if !parseScalar(to, text) {
		b.complain(path, shown+" is not "+article(to.Type()), "write "+expected(to.Type(), tags))
		return
	}
	if found, hint := limits(to, tags); found != "" {
		b.complain(path, shown+" "+found, hint)
	}
}

// noteSecret records where a secret was found, for the check of the files' modes.
func (b *binder) noteSecret(parts []part, path string) {
	b.literal[path] = true
	for _, p := range parts {
		if p.kind == partFile {
			b.secretFiles = append(b.secretFiles, b.around.absolute(p.text))
		}
		if p.kind != partText {
			delete(b.literal, path)
		}
	}
}

// parseScalar parses a number, duration, size, boolean or text. It returns false if the text is not valid for
// the type.
func parseScalar(to reflect.Value, text string) bool {
	switch to.Type() {
	case typeSecret:
		to.Set(reflect.ValueOf(Secret{text}))
		return true
	case typeValue:
		to.Set(reflect.ValueOf(Value{Text: text}))
		return true
	case typeDuration:
		d, err := time.ParseDuration(text)
		to.SetInt(int64(d))
		return err == nil
	case typeBytes:
		n, err := ParseBytes(text)
		to.SetInt(int64(n))
		return err == nil
	}
	switch to.Kind() {
	case reflect.String:
		to.SetString(text)
		return true
	case reflect.Bool:
		to.SetBool(text == "true")
		return text == "true" || text == "false"
	case reflect.Int:
		n, err := strconv.Atoi(text)
		to.SetInt(int64(n))
		return err == nil
	}
	panic("config: no parser for " + to.Type().String())
}

// limits checks the tags enum, min and max. It returns the fault, or "" if there is none.
func limits(v reflect.Value, tags reflect.StructTag) (found, hint string) {
	if enum := tags.Get("enum"); enum != "" {
		words := strings.Split(enum, ",")
		if slices.Contains(words, v.String()) {
			return "", ""
		}
		return "is not known", meant(v.String(), words)
	}
	if low := tags.Get("min"); low != "" && v.Int() < bound(v.Type(), low) {
		return "is too small", "write at least " + low
	}
	if high := tags.Get("max"); high != "" && v.Int() > bound(v.Type(), high) {
		return "is too large", "write at most " + high
	}
	return "", ""
}

func bound(t reflect.Type, text string) int64 {
	v := reflect.New(t).Elem()
	if !parseScalar(v, text) {
		panic("config: bad bound " + text + " for " + t.String())
	}
	return v.Int()
}

// setDefault sets a value to its default tag. A struct is set field by field.
func setDefault(v reflect.Value, tags reflect.StructTag) {
	if text, ok := tags.Lookup("default"); ok {
		if !parseScalar(v, text) {
			panic("config: bad default " + text + " for " + v.Type().String())
		}
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for _, f := range keyed(v.Type()) {
		setDefault(v.FieldByIndex(f.Index), f.Tag)
	}
}

// ---- fields ----

// keyed iterates over a struct's fields with their yaml keys, in order. The fields of inlined structs come in
// place of these.
func keyed(t reflect.Type) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			switch key := f.Tag.Get("yaml"); key {
			case "", "-", ",inline":
			default:
				if !yield(key, f) {
					return
				}
			}
		}
	}
}

func fieldByKey(v reflect.Value, key string) (reflect.Value, reflect.StructTag, bool) {
	for k, f := range keyed(v.Type()) {
		if k == key {
			return v.FieldByIndex(f.Index), f.Tag, true
		}
	}
	return reflect.Value{}, "", false
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for key := range keyed(t) {
		keys = append(keys, key)
	}
	return keys
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// ---- words ----

func article(t reflect.Type) string {
	switch {
	case t == typeDuration:
		return "a duration"
	case t == typeBytes:
		return "a size"
	case t.Kind() == reflect.Bool:
		return "a boolean"
	}
	return "a whole number"
}

func expected(t reflect.Type, tags reflect.StructTag) string {
	if enum := tags.Get("enum"); enum != "" {
		return "one of " + strings.ReplaceAll(enum, ",", ", ")
	}
	if text := tags.Get("example"); text != "" {
		return text
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case typeDuration:
		return "a number and a unit, for example " + cmp.Or(tags.Get("default"), "30s")
	case typeBytes:
		return "a number and a unit, for example " + cmp.Or(tags.Get("default"), "64MiB")
	case typeSecret, typePath, typeTemplate, typeCredential, typeValue:
		return "a text"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "digits, for example " + cmp.Or(tags.Get("default"), "10")
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "keys and values"
	}
	return "a text"
}
