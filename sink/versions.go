package sink

import (
	"fmt"

	"github.com/IBM/sarama"
)

// Keys of requests (https://kafka.apache.org/protocol#protocol_api_keys).
const (
	keyFetch              = 1
	keyInitProducerID     = 22
	keyAddPartitionsToTxn = 24
	keyEndTxn             = 26
)

// versions returns the newest version of each request that a broker knows, by the request's key.
// https://kafka.apache.org/protocol#The_Messages_ApiVersions
func versions(b *sarama.Broker) (map[int16]int16, error) {
	res, err := b.ApiVersions(&sarama.ApiVersionsRequest{})
	if err != nil {
		return nil, err
	}
	known := make(map[int16]int16, len(res.ApiKeys))
	for _, k := range res.ApiKeys {
		known[k.ApiKey] = k.MaxVersion
	}
	return known, nil
}

// canFence implements Broker.CanFence.
func canFence(b *sarama.Broker) error {
	known, err := versions(b)
	if err != nil {
		return err
	}
	for _, key := range []int16{keyInitProducerID, keyAddPartitionsToTxn, keyEndTxn} {
		if _, ok := known[key]; !ok {
			return fmt.Errorf("%w: broker %s does not know requests with key %d", ErrNoTransactions, b.Addr(), key)
		}
	}
	// Older versions do not name the epoch that the producer holds (KIP-360), so a former leader would
	// fence its successor.
	const namesEpoch = 3
	if v := known[keyInitProducerID]; v < namesEpoch {
		return fmt.Errorf("%w that can fence: broker %s knows InitProducerId up to version %d, not %d", ErrNoTransactions, b.Addr(), v, namesEpoch)
	}
	return nil
}
