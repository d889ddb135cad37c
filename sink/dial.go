package sink

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/IBM/sarama"
)

// Dial connects and logs in to one broker as a Sink does, makes sure that it
// answers, and says in words what is in the way. It is for those who look at a
// cluster; the connection ends with ctx, or when the caller closes it.
func (c Config) Dial(ctx context.Context, address string) (*sarama.Broker, error) {
	conf, err := c.Sarama()
	if err != nil {
		return nil, err
	}
	n := newNetwork(ctx, conf, c, conf.Net.ReadTimeout)
	b, err := n.open(address)
	if err != nil {
		return nil, err
	}
	if _, err := b.ApiVersions(&sarama.ApiVersionsRequest{}); err != nil {
		_ = b.Close() // it is given up anyway
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return nil, fmt.Errorf("broker %s: %s: %w", address, n.hintOther("it took the connection, and does not answer"), err)
		}
		return nil, n.explain(address, err)
	}
	return b, nil
}

// Explain says in words what an error of talking to a broker of Dial's means.
func (c Config) Explain(address string, err error) error {
	conf, invalid := c.Sarama()
	if invalid != nil {
		return invalid
	}
	return newNetwork(context.Background(), conf, c, conf.Net.ReadTimeout).explain(address, err)
}

// Client is Sarama's own, for those who read: each of its connections is made and logged in
// as a Sink's are, with secrets and certificates as they are then.
func (c Config) Client(ctx context.Context, with func(*sarama.Config)) (sarama.Client, error) {
	conf, err := c.Sarama()
	if err != nil {
		return nil, err
	}
	n := newNetwork(ctx, conf, c, conf.Net.ReadTimeout)
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

// loggingIn dials connections that are logged in already. Sarama's client has one password for
// all of its connections.
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
	_ = b.Close() // it was lent
	return conn, nil
}

// lent is a connection that outlives the Broker that logs it in.
type lent struct{ net.Conn }

// Dial is called by sarama.
func (l lent) Dial(_, _ string) (net.Conn, error) { return l, nil }

func (lent) Close() error { return nil }
