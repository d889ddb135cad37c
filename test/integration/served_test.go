package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// serve has the program serve HTTP, on a port of each process's own.
func (w *world) serve() { w.config["http"] = fields{"listen": "127.0.0.1:0"} }

// page reads one of the program's pages, with its status code.
func (p *process) page(path string) (code int, text string, err error) {
	address, err := p.address()
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Timeout: 30 * time.Second}
	res, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// address is where the process serves, as it says in its log.
func (p *process) address() (string, error) {
	for _, line := range p.Said(`"address"`) {
		var said struct {
			Message, Address string
		}
		if json.Unmarshal([]byte(line), &said) == nil && strings.HasPrefix(said.Message, "serving ") {
			return said.Address, nil
		}
	}
	return "", fmt.Errorf("the process does not serve yet")
}

// metric sums the samples of a metric that have all of these labels.
func (p *process) metric(name string, labels ...string) (sum float64) {
	p.t.Helper()
	other := func(sample string) bool {
		return slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(sample, l) })
	}
	_, text, err := p.page("/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		sample, value, _ := strings.Cut(lines.Text(), " ")
		if (sample == name || strings.HasPrefix(sample, name+"{")) && !other(sample) {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				p.t.Fatalf("metric %s: %v", lines.Text(), err)
			}
			sum += v
		}
	}
	return sum
}

// ready waits until /readyz says so, and that the process leads or is a standby.
func (p *process) ready(leader bool) {
	p.t.Helper()
	harness.Eventually(p.t, 20*time.Second, func() error {
		code, text, err := p.page("/readyz")
		if err != nil {
			return err
		}
		var said struct {
			Streams []struct{ Leader bool }
		}
		if err := json.Unmarshal([]byte(text), &said); err != nil {
			return err
		}
		if code != http.StatusOK || len(said.Streams) != 1 || said.Streams[0].Leader != leader {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
}
