package sink

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/semaphore"

	"github.com/outbox-cdc/outbox-cdc/internal/secret"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

// network makes connections that end with ctx, whatever sarama is doing with them: when the socket below is
// closed, sarama releases its locks.
type network struct {
	ctx  context.Context // the life of one Run, and of the connections that sarama dials
	conf sarama.Config
	// password is read for each new connection. nil: conf has the password.
	password secret.Reader
	tls      *TLS // its files are read for each connection; nil: no TLS
	// within allows connections to this machine only, because a login would not be encrypted. Each address
	// is checked: brokers may name other brokers than the configuration does.
	within bool
	// longest is the maximum size of an answer in bytes; long answers share room.
	longest int
	room    *semaphore.Weighted
	// wrap, if set, wraps each connection.
	wrap func(net.Conn) net.Conn
	// knownCluster is nil if no row is published.
	knownCluster *KnownCluster
	// closed is shared by all copies of the network.
	closed *closings
}

// newNetwork returns a network. readTimeout is how long its answers may take.
func newNetwork(ctx context.Context, conf *sarama.Config, c Config, readTimeout time.Duration) *network {
	n := &network{ctx: ctx, conf: *conf, tls: c.TLS, closed: &closings{}, longest: longestAnswer, room: c.room, knownCluster: c.KnownCluster}
	n.conf.Net.TLS.Enable = false // Dial encrypts
	if c.SASL != nil {
		n.within = c.TLS == nil && !c.AllowPlaintext
		n.password = c.SASL.PasswordNow
	}
	n.conf.Net.ReadTimeout = readTimeout
	n.conf.Net.Proxy.Enable = true // in sarama, this sets a dialer
	n.conf.Net.Proxy.Dialer = n
	if p, ok := conf.Net.SASL.TokenProvider.(tokenProvider); ok {
		p.ctx = ctx
		n.conf.Net.SASL.TokenProvider = p
	}
	return n
}

// Dial is called by sarama to make a connection.
func (n *network) Dial(kind, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: n.conf.Net.DialTimeout, KeepAlive: 30 * time.Second}
	if n.within {
		d.Control = transport.Stay
	}
	plain, err := d.DialContext(n.ctx, kind, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(n.ctx, func() { _ = plain.Close() })
	conn := net.Conn(&ctxConn{Conn: plain, stop: stop})
	if n.tls != nil {
		if conn, err = n.encrypt(conn, addr); err != nil {
			return nil, err
		}
	}
	conn = &framed{Conn: conn, most: n.longest, room: n.room, patient: n.conf.Net.ReadTimeout, ctx: n.ctx}
	if n.wrap != nil {
		conn = n.wrap(conn)
	}
	return conn, nil
}

// encrypt does the TLS handshake at once; sarama would leave it to the first request.
func (n *network) encrypt(conn net.Conn, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.conf.Net.DialTimeout)
	defer cancel()
	conf, err := n.tls.now()
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	if host, _, err := net.SplitHostPort(addr); err == nil && conf.ServerName == "" {
		conf.ServerName = host // unless another name is configured, the broker's own name is verified
	}
	encrypted := tls.Client(conn, conf)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return encrypted, nil
}

// ctxConn is a connection that is closed when its network ends.
type ctxConn struct {
	net.Conn
	stop func() bool
}

func (c *ctxConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// open connects and authenticates. A sarama.Broker is used for one connection only: after an error it stays
// dead (doc.go), so it is closed and replaced.
func (n *network) open(addr string) (*sarama.Broker, error) {
	conf := n.conf
	if n.password != nil {
		var err error
		if conf.Net.SASL.Password, err = n.password.Read(n.ctx); err != nil {
			return nil, fmt.Errorf("broker %s: could not read the password: %w", addr, err)
		}
	}
	b := sarama.NewBroker(addr)
	if err := b.Open(&conf); err != nil {
		return nil, fmt.Errorf("broker %s: %w", addr, err)
	}
	if ok, err := b.Connected(); !ok {
		_ = b.Close()
		n.noteRefusal(err)
		return nil, n.explain(addr, cmp.Or(err, sarama.ErrNotConnected))
	}
	if n.knownCluster != nil {
		if err := n.knownCluster.judge(b, n.conf.Version); err != nil {
			_ = b.Close() // it is given up anyway
			return nil, n.explain(addr, err)
		}
	}
	return b, nil
}

// noteRefusal forgets a password or a token that a broker does not take any more. Some brokers only close
// the connection to say so.
func (n *network) noteRefusal(err error) {
	if !errors.Is(err, sarama.ErrSASLAuthenticationFailed) && !(errors.Is(err, io.EOF) && n.closed.counts(time.Now())) {
		return
	}
	if n.password != nil {
		n.password.Refused()
	}
	if p, ok := n.conf.Net.SASL.TokenProvider.(tokenProvider); ok {
		p.refused()
	}
}

// closedEvery is the least time between two closed connections that count as refusals. In an outage every
// connection is closed, and otherwise tokens and secrets would be fetched for every attempt.
const closedEvery = time.Minute

type closings struct {
	mu   sync.Mutex
	last time.Time // when a closed connection last counted
}

func (c *closings) counts(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && now.Sub(c.last) < closedEvery {
		return false
	}
	c.last = now
	return true
}

// explain returns an error that says which broker failed, why, and what to do about it.
func (n *network) explain(addr string, err error) error {
	hint := n.hint(err)
	if hint == "" {
		return fmt.Errorf("broker %s: %w", addr, err)
	}
	return fmt.Errorf("broker %s: %s: %w", addr, hint, err)
}

func (n *network) hint(err error) string {
	sasl := n.conf.Net.SASL
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return fmt.Sprintf("it refused our credentials (%s, user %q): correct user name and password", sasl.Mechanism, sasl.User)
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return fmt.Sprintf("it does not offer SASL mechanism %s: choose one that its listener has enabled", sasl.Mechanism)
	case errors.Is(err, sarama.ErrIllegalSASLState):
		return "it wants another SASL handshake: is this a listener with SASL?"
	case errors.Is(err, transport.ErrOtherMachine):
		return "our login would go there without TLS: write tls: {} for the cluster and the port of its listener with TLS, or allow_plaintext: true, or correct the brokers' advertised.listeners"
	case is[*net.DNSError](err):
		return "its name cannot be resolved: correct brokers, or the brokers' advertised.listeners"
	case is[x509.UnknownAuthorityError](err):
		return "its certificate is signed by an authority that we do not trust: set tls.ca_file"
	case is[x509.HostnameError](err):
		return "its certificate is for another name: set tls.server_name or correct the address"
	case is[tls.RecordHeaderError](err):
		return "it does not speak TLS on this port: use its TLS listener or leave tls out"
	case is[*notKafka](err):
		return n.hintOther("something answers there that speaks another protocol")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return n.hintOther("it closed the connection")
	}
	return ""
}

// hintOther returns a hint for a server that speaks another protocol than we do. A broker then closes the
// connection without a message, or waits for the rest of what it takes for a request.
func (n *network) hintOther(did string) string {
	var has []string
	other := "something else"
	if n.tls != nil {
		has = append(has, "TLS")
	}
	if n.conf.Net.SASL.Enable { // some brokers answer a wrong password in this way, too
		has = append(has, fmt.Sprintf("SASL %s as %q", n.conf.Net.SASL.Mechanism, n.conf.Net.SASL.User))
		other = "something else, or another password"
	}
	with := "neither TLS nor SASL"
	if has != nil {
		with = strings.Join(has, " and ")
	}
	return did + " (we use " + with + "; does its listener want " + other + "?)"
}

// client returns a client of sarama's own, for a Reader.
func (c Config) client(ctx context.Context, with func(*sarama.Config)) (sarama.Client, error) {
	conf, err := c.sarama()
	if err != nil {
		return nil, err
	}
	n := newNetwork(ctx, conf, c, conf.Net.ReadTimeout)
	n.longest = longestFetch
	own := n.conf
	if own.Net.SASL.Enable {
		own.Net.SASL, own.Net.Proxy.Dialer = sarama.NewConfig().Net.SASL, loggingIn{n}
	}
	with(&own)
	client, err := sarama.NewClient(c.Brokers, &own)
	if err != nil {
		return nil, fmt.Errorf("kafka cluster %s: %w", c.Cluster, err)
	}
	return client, nil
}

// loggingIn dials connections and logs in on them. It is needed because sarama's client has only one
// password for all of its connections.
type loggingIn struct{ *network }

func (l loggingIn) Dial(kind, addr string) (net.Conn, error) {
	conn, err := l.network.Dial(kind, addr)
	if err != nil {
		return nil, err
	}
	own := *l.network
	own.conf.Net.Proxy.Dialer = lent{conn}
	b, err := own.open(addr)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = b.Close() // the connection was lent, so it stays open
	return conn, nil
}

// lent is a connection that outlives the Broker that logged it in.
type lent struct{ net.Conn }

// Dial returns the lent connection.
func (l lent) Dial(_, _ string) (net.Conn, error) { return l, nil }

func (lent) Close() error { return nil }
