package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// hostile has what would write to a terminal's clipboard, hide a line, turn the
// direction of what follows, and be a control character of one byte.
const hostile = "a\x1b]52;c;aGk=\x07\x1b[2K\x1b[1A\u202eb\u2066c\u009b31md\x9be\x7f\r\u200b\U000e0001é😀"

const harmless = `a\u001b]52;c;aGk=\u0007\u001b[2K\u001b[1A\u202eb\u2066c\u009b31md\x9be\u007f\u000d\u200b\udb40\udc01é😀`

func TestSafeWriter(t *testing.T) {
	t.Parallel()
	for size := 1; size < 9; size++ { // characters come in pieces
		var out bytes.Buffer
		w := &safeWriter{to: &out}
		for rest := "\t" + hostile + "\n"; rest != ""; {
			n := min(size, len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if got := out.String(); got != "\t"+harmless+"\n" {
			t.Fatalf("in pieces of %d: %q", size, got)
		}
	}
	if got := printable(hostile + "\nforged"); got != harmless+`\u000aforged` {
		t.Errorf("%q", got)
	}
}

// JSON means the same.
func TestSafeJSON(t *testing.T) {
	t.Parallel()
	text := strings.ToValidUTF8(hostile, "") // JSON cannot hold invalid UTF-8
	var out bytes.Buffer
	if err := printJSON(&safeWriter{to: &out}, text); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != text || strings.ContainsAny(out.String(), "\x1b\u202e\u009b") {
		t.Errorf("%q from %q: %v", back, out.String(), err)
	}
}

func TestLogIsSafe(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		logs := logFlags{format: format, level: "info"}
		log, err := logs.logger(&safeWriter{to: &out})
		if err != nil {
			t.Fatal(err)
		}
		log.Error().Err(&failure{err: errText(hostile)}).Str("topic", hostile).Strs("id", []string{hostile}).Msg(hostile)
		if got := out.String(); strings.ContainsAny(got, "\x1b\x07\u202e\u009b\u200b\r") || strings.Contains(got, "\x9b") || !strings.Contains(got, "😀") {
			t.Errorf("%s: %q", format, got)
		}
	}
}

type errText string

func (e errText) Error() string { return string(e) }
