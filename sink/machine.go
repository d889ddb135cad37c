package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// machine decides everything that a sink does: which rows make a batch, what a
// reply means, who is given back. It is pure: no I/O, no clock, no goroutine.
// Inputs are methods, what they lead to is collected until take.
//
// Invariants:
//   - a row is in exactly one of: topic.waiting, partitionQueue.rows, partitionQueue.inFlight, outcomes;
//     with transactions, in partitionQueue.given in place of inFlight;
//   - a batch that may be in the partition log is never changed, split or given back
//     before its fate is known;
//   - a partition's rows leave it in order.
type machine struct {
	cluster string
	cfg     machineConfig
	now     time.Time
	begin   time.Time // Row.Since counts from here
	closed  bool      // nothing may be sent now; see Config.Until

	id      producer
	fencing bool // the producer id belongs to a transactional id
	// inherited are topics whose fences the leader before has left, and that were not forgotten since.
	inherited map[string]outbox.FencedTopic
	tx        *transactor // nil: no transactions
	topics    map[string]*topic
	uuids     map[string]sarama.Uuid // by name, of every topic that was there, also of those that are forgotten
	last      *topic                 // of the last row: most rows go where the one before went
	dirty     []*partitionQueue      // to be looked at by pump
	waiting   map[*partitionQueue]struct{}
	failing   map[*partitionQueue]struct{} // partitions that have an err
	stalled   map[*topic]trouble

	// Metadata: at most one request is out.
	asking     bool
	askAt      time.Time // next request, or zero
	askErrs    int       // failures in a row
	askFails   trouble
	askedAt    time.Time
	turns      int  // topics that were to be asked about
	manyAbsent bool // the answer lacks very many topics
	list       bool // all topics are to be asked about
	answered   time.Time
	ackedAt    time.Time

	// Producer id: at most one job is out.
	jobOut    bool
	idFails   trouble
	resolves  []*batch // wanted
	unfenced  bool     // some partition may want fencing
	reused    bool     // a partition whose sequence is forgotten has had batches under the producer id
	jobAt     time.Time
	keepAt    time.Time
	usability usability
	// The class of the reason that was told for an unusable cluster, and when.
	told   string
	toldAt time.Time

	out work
}

// machineConfig bounds a machine; see Config.
type machineConfig struct {
	limits      limits
	topicGrace  time.Duration
	outageAfter time.Duration
	heldFor     time.Duration
	refresh     time.Duration
	keepAlive   time.Duration
	// random chooses one of n; it spreads records without a key.
	random func(n int) int
	// transactions, nil: none.
	transactions *Transactions
	// journals are topics that take no row.
	journals []string
	// before is what the leader before has left; nil: nothing.
	before *outbox.Fences
}

// trouble is the last error of what fails, and since when it does; zero: it does not.
type trouble struct {
	since time.Time
	err   error
}

func (t *trouble) fail(now time.Time, err error) {
	if t.err == nil {
		t.since = now
	}
	t.err = err
}

type usability uint8

const (
	usabilityUnknown usability = iota
	usable
	unusable
)

type topicPartition struct {
	Topic  string
	Number int32
}

// work is what is to be done now.
type work struct {
	send     []*batch
	outcomes []outbox.Outcome
	states   []outbox.ClusterState
	ask      *metadataRequest
	job      *producerIDJob
	notes    []note

	// Of transactions: requests of the coordinator and the journal, ends, units that the
	// database may not know, and why Run ends.
	requests []*exactlyonce.Request
	ends     []ended
	recovery *exactlyonce.Recovery
	unended  map[string][]int32 // changed: where ends of transactions are missing
	fatal    error
}

type metadataRequest struct {
	topics []string
	all    bool // of the cluster, whatever topics says
}

// topicInfo is what metadata says of a topic.
type topicInfo struct {
	code     sarama.KError
	uuid     sarama.Uuid
	leaders  []string // address by partition, empty: none
	maxBytes int      // max.message.bytes, or 0: not told
	internal bool     // Kafka's own
}

type producerIDJob struct {
	// fence these partitions against older producers.
	fence []fenceTarget
	// resolve these batches: seal their partitions against all their tries,
	// then search the partition log for them.
	resolve []search
	// keepAlive, if set, refreshes the id by an empty transaction there.
	keepAlive *topicPartition
	// request, if set, is all there is to do; see transactor.
	request *exactlyonce.Request
	// leaders of the partitions of an Ends, as far as the machine knows them.
	leaders map[topicPartition]string
}

type fenceTarget struct {
	topicPartition
	leader string
	spared bool // it is fenced, and only its end is asked for
}

type search struct {
	fenceTarget
	batch  *batch      // only handed back, never looked into
	uuid   sarama.Uuid // of the topic that from is an offset of
	as     producer
	seq    int32
	n      int
	from   int64
	sealed bool
	look   bool // some try may have landed
}

type producerIDResult struct {
	id      producer
	fenced  []topicPartition
	shown   map[topicPartition]bool  // of these: its leader says so
	tails   map[topicPartition]int64 // log ends after fencing, where known
	refused map[topicPartition]sarama.KError
	found   []searched
}

type searched struct {
	batch  *batch
	sealed bool
	found  bool
	offset int64
	err    error // not found out
}

// note is a line for the log.
type note struct {
	text  string
	topic string
	err   error
}

func newMachine(cluster string, cfg machineConfig, topics []string) *machine {
	m := &machine{
		cluster: cluster, cfg: cfg, id: nobody, fencing: true, topics: map[string]*topic{}, uuids: map[string]sarama.Uuid{}, stalled: map[*topic]trouble{},
		waiting: map[*partitionQueue]struct{}{}, failing: map[*partitionQueue]struct{}{},
	}
	if tx := cfg.transactions; tx != nil {
		journal := newTopic(tx.Journal)
		journal.queues = []*partitionQueue{{topic: journal, as: nobody, tail: -1}}
		m.tx = &transactor{cfg: tx, journal: journal, back: map[*outbox.Row]error{}, unended: map[topicPartition]bool{}}
	}
	for _, name := range topics {
		m.topics[name] = newTopic(name)
	}
	return m
}

func (m *machine) take() work {
	w := m.out
	m.out = work{}
	return w
}

// withHint adds to a topic's error what to do about it.
func withHint(err error) error {
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		return fmt.Errorf("%w (grant WRITE on the topic to our user)", err)
	}
	return err
}
