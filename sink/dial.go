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
	c.defaults()
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
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil, fmt.Errorf("broker %s: %s: %w", address, n.hintOther("it took the connection, and does not answer"), err)
		}
		return nil, n.explain(address, err)
	}
	return b, nil
}

// Explain says in words what an error of talking to a broker of Dial's means.
func (c Config) Explain(address string, err error) error {
	c.defaults()
	conf, invalid := c.Sarama()
	if invalid != nil {
		return invalid
	}
	return newNetwork(context.Background(), conf, c, conf.Net.ReadTimeout).explain(address, err)
}
