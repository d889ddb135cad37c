package sink

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

// countedSecret counts how often the secret was refused.
type countedSecret int

func (c *countedSecret) Read(context.Context) (string, error) { return "hunter2", nil }
func (c *countedSecret) Refused()                             { *c++ }

// Each refusal counts. A closed connection counts only once a minute, because in an outage all connections are
// closed.
func TestWhatCountsAsARefusal(t *testing.T) {
	t.Parallel()
	var refused countedSecret
	n := &network{password: &refused, closed: &closings{}}
	for i, step := range []struct {
		err   error
		later time.Duration
		want  countedSecret
	}{
		{err: io.EOF, want: 1},
		{err: fmt.Errorf("read: %w", io.EOF), want: 1},
		{err: io.ErrUnexpectedEOF, want: 1},
		{err: sarama.ErrSASLAuthenticationFailed, want: 2},
		{err: sarama.ErrSASLAuthenticationFailed, want: 3},
		{err: io.EOF, later: closedEvery, want: 4},
		{err: io.EOF, want: 4},
	} {
		n.closed.last = n.closed.last.Add(-step.later)
		n.noteRefusal(step.err)
		if refused != step.want {
			t.Errorf("step %d, %v: refused %d times, want %d", i, step.err, refused, step.want)
		}
	}
}

// Brokers name further brokers. A login never leaves this machine unencrypted, whichever broker names its
// destination. Without a login, or if it is allowed, all addresses are dialled.
func TestALoginStaysOnThisMachine(t *testing.T) {
	t.Parallel()
	away := func(network, _ string) (net.Listener, error) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), network, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		shown := *l.Addr().(*net.TCPAddr)
		shown.IP = net.IPv4(192, 0, 2, 1)
		return elsewhere{l, &shown}, nil
	}
	k := fake(t, kfake.ListenFn(away), kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "cdc", "right"))
	_, port, err := net.SplitHostPort(k.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{
		Brokers: []string{"127.0.0.1:" + port}, DialTimeout: 30 * time.Second,
		SASL: &SASL{Mechanism: transport.SASLPlain, Username: "cdc", Password: "right"},
	})
	r.publish(newRow("t", "k", "v"))
	s := r.usable(10*time.Second, false)
	if !strings.Contains(s.Err.Error(), "broker 192.0.2.1:"+port+": our login would go there without TLS") {
		t.Error(s.Err)
	}
	for name, c := range map[string]struct {
		Config
		stays bool
	}{
		"login":   {Config{SASL: &SASL{}}, true},
		"tls":     {Config{SASL: &SASL{}, TLS: &TLS{}}, false},
		"allowed": {Config{SASL: &SASL{}, AllowPlaintext: true}, false},
		"none":    {Config{}, false},
	} {
		if n := newNetwork(t.Context(), sarama.NewConfig(), c.Config, time.Second); n.within != c.stays {
			t.Errorf("%s: %v", name, n.within)
		}
	}
}
