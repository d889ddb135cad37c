package outbox

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	long := strings.Repeat("a", maxCompared)
	for name, want := range map[string]string{"payloda": "payload", "PAYLOADS": "payload", "b": "", "": "", long[1:]: long, long + "a": ""} {
		if got := Nearest(name, []string{"payload", "payloaD", long, long + "aa"}, len(name)/2); got != want {
			t.Errorf("%q is meant by %q", got, name)
		}
	}
	for words, want := range map[[2]string]int{{"", "abc"}: 3, {"abc", ""}: 3, {"kitten", "sitting"}: 3, {"abc", "xabc"}: 1, {"abcd", "acbd"}: 1} {
		if got := typos(words[0], words[1]); got != want {
			t.Errorf("%q: %d", words, got)
		}
	}
}
