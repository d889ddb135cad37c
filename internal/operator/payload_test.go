package operator

import "testing"

func TestEscapedBytesAreReadBack(t *testing.T) {
	for text, want := range map[string]string{
		``: "", `plain`: "plain", `\000\303\251`: "\x00é", `a\\b`: `a\b`, `\\000`: `\000`, `\37`: `\37`, `\377`: "\xff", `\\`: `\`, `\`: `\`,
	} {
		if got := string(unescape(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
