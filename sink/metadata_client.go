package sink

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// metadataTimeout is how long a broker may take to answer with metadata. Brokers answer from memory.
const metadataTimeout = 3 * time.Second

// metadataClient asks for metadata on a connection of its own, so that its requests do not wait behind
// produce requests.
type metadataClient struct {
	net       *network
	bootstrap []string
	known     []string // brokers that the last answer named
	conn      *sarama.Broker
}

// ask returns the metadata of the topics, from the first broker that answers.
func (mc *metadataClient) ask(ctx context.Context, what *metadataRequest) (map[string]topicInfo, error) {
	var failures []string
	var cause error
	for _, addr := range mc.candidates() {
		infos, err := mc.askOne(addr, what)
		if err == nil {
			return infos, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		failures = append(failures, err.Error())
		if cause == nil || errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
			cause = err // refused credentials tell more than a network error, which may pass
		}
	}
	return nil, &unreachableError{strings.Join(failures, "; "), cause}
}

// unreachableError says why each broker cannot be used. The log line that contains it names the cluster.
type unreachableError struct {
	text  string
	cause error
}

func (e *unreachableError) Error() string { return e.text }
func (e *unreachableError) Unwrap() error { return e.cause }

// candidates returns the addresses to try, in order: the connected broker, those of the last answer, the
// configured ones.
func (mc *metadataClient) candidates() []string {
	var addrs []string
	if mc.conn != nil {
		addrs = append(addrs, mc.conn.Addr())
	}
	for _, addr := range slices.Concat(mc.known, mc.bootstrap) {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

func (mc *metadataClient) askOne(addr string, what *metadataRequest) (map[string]topicInfo, error) {
	reused := mc.conn != nil && mc.conn.Addr() == addr
	if !reused {
		mc.close()
		conn, err := mc.net.open(addr)
		if err != nil {
			return nil, err
		}
		mc.conn = conn
	}
	infos, err := mc.talk(what)
	if err != nil {
		mc.close()
		if reused { // brokers close idle connections
			return mc.askOne(addr, what)
		}
		return nil, mc.net.explain(addr, err)
	}
	if !what.all {
		mc.limits(infos)
	}
	return infos, nil
}

// talk sends the request to the connected broker. An empty list of topics would mean all topics of the
// cluster. So without topics, talk only makes sure that the broker answers.
func (mc *metadataClient) talk(what *metadataRequest) (map[string]topicInfo, error) {
	if len(what.topics) == 0 && !what.all {
		_, err := mc.conn.ApiVersions(&sarama.ApiVersionsRequest{})
		return nil, err
	}
	res, err := mc.conn.GetMetadata(sarama.NewMetadataRequest(mc.net.conf.Version, what.topics))
	if err != nil {
		return nil, err
	}
	if err := mc.net.knownCluster.heard(mc.conn.Addr(), res, what.topics); err != nil {
		return nil, err
	}
	addrs := make(map[int32]string, len(res.Brokers))
	mc.known = mc.known[:0]
	for _, b := range res.Brokers {
		addrs[b.ID()] = b.Addr()
		mc.known = append(mc.known, b.Addr())
	}
	infos := make(map[string]topicInfo, len(res.Topics))
	for _, t := range res.Topics {
		info := topicInfo{code: t.Err, uuid: t.Uuid, internal: t.IsInternal, leaders: make([]string, len(t.Partitions))}
		for _, p := range t.Partitions {
			if int(p.ID) >= len(info.leaders) || p.ID < 0 {
				info.leaders = nil // a gap: wait for a complete answer
				break
			}
			info.leaders[p.ID] = addrs[p.Leader]
		}
		infos[t.Name] = info
	}
	return infos, nil
}

// limits asks for the topics' max.message.bytes. Without DESCRIBE_CONFIGS on a topic the setting stays
// unknown, and is learnt from refusals.
func (mc *metadataClient) limits(infos map[string]topicInfo) {
	req := &sarama.DescribeConfigsRequest{Version: 2}
	for name, info := range infos {
		if info.code == sarama.ErrNoError {
			req.Resources = append(req.Resources, &sarama.ConfigResource{
				Type: sarama.TopicResource, Name: name, ConfigNames: []string{"max.message.bytes"},
			})
		}
	}
	if len(req.Resources) == 0 {
		return
	}
	res, err := mc.conn.DescribeConfigs(req)
	if err != nil {
		mc.close()
		return
	}
	for _, r := range res.Resources {
		info, ok := infos[r.Name]
		if !ok || r.ErrorCode != 0 {
			continue
		}
		for _, c := range r.Configs {
			if n, err := strconv.Atoi(c.Value); err == nil && c.Name == "max.message.bytes" {
				info.maxBytes = n
				infos[r.Name] = info
			}
		}
	}
}

func (mc *metadataClient) close() {
	if mc.conn != nil {
		_ = mc.conn.Close()
		mc.conn = nil
	}
}
