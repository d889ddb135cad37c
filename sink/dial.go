package sink

import (
	"context"

	"github.com/IBM/sarama"
)

// Dial connects and logs in to one broker as a Sink does, and says in words
// what is in the way. It is for those who look at a cluster; the connection
// ends with ctx, or when the caller closes it.
func (c Config) Dial(ctx context.Context, address string) (*sarama.Broker, error) {
	c.defaults()
	conf, err := c.Sarama()
	if err != nil {
		return nil, err
	}
	var count counters
	return newNetwork(ctx, conf, &count, conf.Net.ReadTimeout).open(address)
}
