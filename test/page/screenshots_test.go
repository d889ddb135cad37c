package page

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// TestScreenshots makes the pictures of the documentation from a demo that loses
// Kafka for a while: make screenshots.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("OUTBOX_SCREENSHOTS")
	if dir == "" {
		t.Skip("make screenshots makes the documentation's pictures")
	}
	t.Setenv("OUTBOX_TEST_ARTEFACTS", dir)
	b := start(t)
	demo := launch(t, "demo", "--serve", "--duration", "5m", "--rate", "300", "--outage", "20s", "--log-format", "console")
	url := demo.await(`page: (http://\S+)`)[1]
	demo.await(`writing orders`)
	b.open(url + "/")
	b.await("#live", "Live.")
	harness.Eventually(t, 7*time.Minute, func() error {
		if !strings.Contains(demo.log(), "every row is through") {
			return fmt.Errorf("the demo is under way: %s", demo.log())
		}
		return nil
	})
	b.await("section.lane", "0 pending")
	b.shoot("overview", screen, dark)
	demo.Signal(syscall.SIGINT)
	demo.Ended(30 * time.Second)
	short := launch(t, "demo", "--duration", "12s", "--rate", "300", "--outage", "3s", "--log-format", "console")
	if code := short.Ended(time.Minute); code != 0 {
		t.Fatalf("exit code %d: %s", code, short.log())
	}
	if err := os.WriteFile(filepath.Join(dir, "demo.svg"), terminal("make demo", short.log()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// terminal draws what a command printed.
func terminal(command, printed string) []byte {
	const width, line = 1040, 18
	lines := append([]string{"$ " + command}, strings.Split(strings.TrimSpace(printed), "\n")...)
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"><title>%s in a terminal</title>`+"\n", width, line*(len(lines)+2), html.EscapeString(command))
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" rx="8" fill="#181d24"/><g font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13" fill="#e6e9ee">`+"\n")
	for i, text := range lines {
		if runes := []rune(text); len(runes) > 128 {
			text = string(runes[:127]) + "…"
		}
		fmt.Fprintf(&out, `<text x="16" y="%d">%s</text>`+"\n", line*(i+2)-4, strings.ReplaceAll(html.EscapeString(text), " ", "\u00a0"))
	}
	out.WriteString("</g></svg>\n")
	return []byte(out.String())
}
