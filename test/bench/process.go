package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

// client does not ask for compressed pages: they cost the measured process.
var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableCompression: true}}

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

// prime starts and stops the program once, and waits in between until every
// stream streams and has noted its slot: a slot that is new to its stream has the
// table swept first.
func (w *world) prime() {
	w.t.Helper()
	p := w.run()
	await(w.t, time.Minute, 50*time.Millisecond, func() error {
		streaming, err := p.metric(`outbox_cdc_mode{mode="stream"`)
		parks, parked := p.metric("outbox_cdc_parks")
		if err = errors.Join(err, parked); err == nil && (min(int(streaming), len(p.Said(`"streaming"`))) < len(w.dbs) || parks > 0) {
			err = fmt.Errorf("%.0f of %d streams stream, %.0f parks", streaming, len(w.dbs), parks)
		}
		return err
	})
	p.Stop(30 * time.Second)
}

// metric is the sum of a metric over its labels. A name may end in its first
// labels, such as name{a="b".
func (p *program) metric(name string) (sum float64, err error) {
	resp, err := p.get(p.t.Context(), "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		rest, ours := strings.CutPrefix(lines.Text(), name)
		if !ours || rest == "" || !strings.ContainsRune("{ ,", rune(rest[0])) {
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

// reaches waits until a metric has reached a count. Each look costs the measured
// process a little, so there are few: half of the time that is left at this pace
// passes between two of them, at most half a second.
func (p *program) reaches(within time.Duration, name string, count float64) {
	p.t.Helper()
	began := time.Now()
	for {
		now, err := p.metric(name)
		took := time.Since(began)
		switch {
		case err == nil && now >= count:
			return
		case took > within:
			p.t.Fatalf("not within %v: %s is %.0f of %.0f (%v)", within, name, now, count, err)
		}
		if !until(p.t.Context(), time.Now().Add(nextLook(took, now/count))) {
			p.t.Fatal("the bench ended")
		}
	}
}

// nextLook is when to look again at what has taken so long for a share of it.
func nextLook(took time.Duration, share float64) time.Duration {
	const least, most = 20 * time.Millisecond, 500 * time.Millisecond
	if share <= 0 {
		return 100 * time.Millisecond
	}
	left := float64(took) * (1 - share) / share
	return min(max(time.Duration(left/2), least), most)
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
