package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// program is a running outbox-cdc.
type program struct {
	*harness.Process
	t       *testing.T
	address string
	began   time.Time
}

// run starts the program. The binary is built before, so that began is the
// process's own begin.
func (w *world) run() *program {
	w.t.Helper()
	binary := harness.Binary(w.t)
	began := time.Now()
	cmd := exec.Command(binary, "run", "--config", w.file, "--log-format", "json")
	return &program{Process: harness.Start(w.t, cmd), t: w.t, address: w.listen, began: began}
}

// leading waits until the program leads a stream, and says since when by the
// program's own log.
func (p *program) leading() time.Time {
	p.t.Helper()
	var line struct {
		Time time.Time `json:"time"`
	}
	text := p.Await(time.Minute, `"leading"`)
	if err := json.Unmarshal([]byte(text), &line); err != nil || line.Time.IsZero() {
		p.t.Fatalf("a log line without a time: %s (%v)", text, err)
	}
	return line.Time
}

var client = &http.Client{Timeout: 5 * time.Second}

// get asks one of the program's pages.
func (p *program) get(ctx context.Context, page string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+page, http.NoBody)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// ready waits until /readyz says so.
func (p *program) ready() time.Time {
	p.t.Helper()
	await(p.t, 30*time.Second, 2*time.Millisecond, func() error {
		resp, err := p.get(p.t.Context(), "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", resp.Status)
		}
		return nil
	})
	return time.Now()
}

// metric is the sum of a metric over its labels.
func (p *program) metric(name string) (sum float64, err error) {
	resp, err := p.get(p.t.Context(), "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		rest, ours := strings.CutPrefix(lines.Text(), name)
		if !ours || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += v
	}
	return sum, nil
}

// await polls at a steady pace, for what a figure depends on.
func await(t testing.TB, within, every time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	pace := time.NewTicker(every)
	defer pace.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
		select {
		case <-pace.C:
		case <-t.Context().Done():
			t.Fatalf("the bench ended before: %v", err)
		}
	}
}
