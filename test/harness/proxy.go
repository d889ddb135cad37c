package harness

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy stands between a client and a server on 127.0.0.1, in this process.
type Proxy struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

// NewProxy starts a proxy in front of host:port, on a port of its own.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return proxyOn(t, fmt.Sprintf("127.0.0.1:%d", ports[0]), upstream)
}

func proxyOn(t testing.TB, listen, upstream string) *Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{t: t, proxy: toxiproxy.NewProxy(server, "proxy", listen, upstream)}
	p.Allow()
	proxies.Add(1)
	t.Cleanup(func() {
		p.proxy.Stop()
		if proxies.Add(-1) == 0 {
			awaitNoProxy(t)
		}
	})
	return p
}

// Moved is another proxy in front of the same server, on the same port of another
// address of this machine.
func (p *Proxy) Moved(t testing.TB, host string) *Proxy {
	t.Helper()
	_, port, _ := strings.Cut(p.Addr(), ":")
	return proxyOn(t, host+":"+port, p.proxy.Upstream)
}

// proxies counts those that are open.
var proxies atomic.Int64

// awaitNoProxy waits for the goroutines of closed proxies. Stop does not, and on a busy machine
// they may still be there when a package looks for goroutines that its tests have left.
func awaitNoProxy(t testing.TB) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var all strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // a Builder takes everything
		if !strings.Contains(all.String(), "github.com/Shopify/toxiproxy") || proxies.Load() > 0 {
			return
		}
	}
	t.Log("harness: a closed proxy still has goroutines")
}

// Addr is where the proxy listens, host:port. It stays the same.
func (p *Proxy) Addr() string { return p.proxy.Listen }

// Refuse closes all connections and takes no new ones.
func (p *Proxy) Refuse() { p.proxy.Stop() }

// Allow takes connections again.
func (p *Proxy) Allow() {
	p.t.Helper()
	Eventually(p.t, 5*time.Second, func() error {
		if err := p.proxy.Start(); err != nil {
			return fmt.Errorf("starting a proxy on %s: %w", p.proxy.Listen, err)
		}
		return nil
	})
}

// Cut closes all connections; new ones are welcome.
func (p *Proxy) Cut() {
	p.t.Helper()
	p.Refuse()
	p.Allow()
}

// Lead closes all connections; new ones lead to another server than the one before.
func (p *Proxy) Lead(upstream string) (before string) {
	p.t.Helper()
	p.Refuse()
	before, p.proxy.Upstream = p.proxy.Upstream, upstream
	p.Allow()
	return before
}

// Direction is the way data goes.
type Direction string

// The directions.
const (
	Requests Direction = "upstream"   // from the client to the server
	Replies  Direction = "downstream" // from the server to the client
)

// Silence drops what goes in a direction and leaves the connections open: with
// both it is a half-open connection, with Replies a lost acknowledgement.
// Speak closes those connections.
func (p *Proxy) Silence(directions ...Direction) {
	p.t.Helper()
	for _, d := range directions {
		p.add("silence_"+string(d), d, `"timeout"`, `{"timeout":0}`)
	}
}

// Speak ends Silence and Slow.
func (p *Proxy) Speak() { p.proxy.Toxics.ResetToxics(context.Background()) }

// Slow holds data back in a direction.
func (p *Proxy) Slow(d Direction, by time.Duration) {
	p.t.Helper()
	p.add("slow_"+string(d), d, `"latency"`, fmt.Sprintf(`{"latency":%d}`, by.Milliseconds()))
}

// Bandwidth limits a direction, in KB/s.
func (p *Proxy) Bandwidth(d Direction, rate int) {
	p.t.Helper()
	p.add("rate_"+string(d), d, `"bandwidth"`, fmt.Sprintf(`{"rate":%d}`, rate))
}

// CutAfter closes a connection when so many bytes have gone in a direction.
func (p *Proxy) CutAfter(d Direction, bytes int) {
	p.t.Helper()
	p.add("cut_"+string(d), d, `"limit_data"`, fmt.Sprintf(`{"bytes":%d}`, bytes))
}

func (p *Proxy) add(name string, d Direction, kind, attributes string) {
	p.t.Helper()
	toxic := fmt.Sprintf(`{"name":%q,"stream":%q,"type":%s,"attributes":%s}`, name, string(d), kind, attributes)
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		p.t.Fatalf("harness: a proxy's %s: %v", name, err)
	}
}

// Proxied returns the database seen through a proxy.
func (db *DB) Proxied(t testing.TB) (*DB, *Proxy) {
	t.Helper()
	p := NewProxy(t, db.Server.Addr())
	through := *db
	through.DSN = strings.Replace(db.DSN, db.Server.Addr(), p.Addr(), 1)
	return &through, p
}
