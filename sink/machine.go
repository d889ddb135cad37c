package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// machine makes all decisions of a sink: which rows form a batch, what a reply means, and which rows are
// given back. It is pure: no I/O, no clock, no goroutine. Its methods take the inputs, and take returns what
// has to be done.
//
// Invariants:
//   - each row is in exactly one of topic.waiting, partitionQueue.rows, partitionQueue.inFlight and
//     work.outcomes; with transactions, partitionQueue.given takes the place of inFlight;
//   - a batch that may be in the partition log is never changed, split or given back before its outcome is
//     known;
//   - the rows of a partition leave its queue in order.
type machine struct {
	cluster string
	cfg     machineConfig
	now     time.Time
	begin   time.Time // the time from which Row.Since counts
	closed  bool      // nothing may be sent now; see Config.Until

	id      producer
	fencing bool // the producer id belongs to a transactional id
	// inherited are topics with fences that the leader before has left. Topics that were forgotten since are
	// not among them.
	inherited map[string]outbox.FencedTopic
	tx        *transactor // nil: no transactions
	topics    map[string]*topic
	uuids     map[string]sarama.Uuid       // topic ids by name, also of topics that were forgotten
	last      *topic                       // the topic of the last row, because most rows go to the same topic as the row before
	dirty     []*partitionQueue            // partitions that pump has to look at
	waiting   map[*partitionQueue]struct{} // partitions that wait for the time in their field at
	failing   map[*partitionQueue]struct{} // partitions with a trouble
	stalled   map[*topic]trouble           // topics that cannot be used for now, and why

	// Metadata. At most one request is outstanding.
	asking     bool
	askAt      time.Time // when the next request is due
	askErrs    int       // failures in a row
	askFails   trouble   // why requests are not answered
	askedAt    time.Time // when the last request was made
	turns      int       // number of topics that the last request could have asked about
	manyAbsent bool      // the last answer lacks very many topics
	list       bool      // the next request has to ask about all topics
	answered   time.Time // when the last answer came, or the last request failed
	ackedAt    time.Time // when the last batch was acknowledged

	// Producer id. At most one job is outstanding.
	jobOut    bool
	idFails   trouble   // why jobs fail
	resolves  []*batch  // batches that have to be searched for
	unfenced  bool      // a partition may need a fence
	reused    bool      // a partition was forgotten with its sequence, after it had batches under this producer id
	jobAt     time.Time // when the next job may be given
	keepAt    time.Time // when the producer id has to be kept alive
	usability usability
	// told is the class of the reason that was last reported for an unusable cluster, and toldAt is when.
	told   string
	toldAt time.Time

	out work
}

// machineConfig is the configuration of a machine; see Config.
type machineConfig struct {
	limits      limits
	topicGrace  time.Duration
	outageAfter time.Duration
	heldFor     time.Duration
	refresh     time.Duration
	keepAlive   time.Duration
	// random returns one of the numbers 0 to n-1. It spreads records without a key over the partitions.
	random func(n int) int
	// transactions is nil if rows are published without transactions.
	transactions *Transactions
	// journals are topics to which no row may be sent.
	journals []string
	// before are the fences that the leader before has left, or nil.
	before *outbox.Fences
}

// trouble is the last error of something that fails, and since when it has been failing. The zero value says
// that it does not fail.
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

// work is what has to be done now.
type work struct {
	send     []*batch
	outcomes []outbox.Outcome
	states   []outbox.ClusterState
	ask      *metadataRequest
	job      *producerIDJob
	notes    []note

	// For transactions: requests to the coordinator and for the journal, ends of transactions, units that
	// the database may not know, and the error with which Run ends.
	requests []*exactlyonce.Request
	ends     []ended
	recovery *exactlyonce.Recovery
	unended  map[string][]int32 // if changed: all partitions where ends of transactions are missing
	fatal    error
}

type metadataRequest struct {
	topics []string
	all    bool // ask about all topics of the cluster, and ignore the field topics
}

// topicInfo is what metadata tells about a topic.
type topicInfo struct {
	code     sarama.KError
	uuid     sarama.Uuid
	leaders  []string // address of each partition's leader; empty: no leader
	maxBytes int      // max.message.bytes; 0: not told
	internal bool     // one of Kafka's own topics
}

// producerIDJob is a job for the producerIDClient.
type producerIDJob struct {
	// fence are the partitions to be fenced against older producers.
	fence []fenceTarget
	// resolve are the batches to be searched for. First, each partition is sealed against all tries of its
	// batch; then its partition log is searched.
	resolve []search
	// keepAlive, if set, is the partition for an empty transaction that keeps the producer id from expiring.
	keepAlive *topicPartition
	// request, if set, is the whole job; see transactor.
	request *exactlyonce.Request
	// leaders are the leaders of the partitions of an Ends request, as far as the machine knows them.
	leaders map[topicPartition]string
}

type fenceTarget struct {
	topicPartition
	leader string
	spared bool // the partition is fenced already: only the end of the fence is asked for
}

type search struct {
	fenceTarget
	batch  *batch      // returned with the result; the producerIDClient does not read it
	uuid   sarama.Uuid // id of the topic in which from is an offset
	as     producer
	seq    int32
	n      int
	from   int64
	sealed bool
	look   bool // some try may have been appended
}

type producerIDResult struct {
	id      producer
	fenced  []topicPartition
	shown   map[topicPartition]bool  // those of fenced whose leader has shown the fence
	tails   map[topicPartition]int64 // ends of the partition logs after fencing, where known
	refused map[topicPartition]sarama.KError
	found   []searched
}

type searched struct {
	batch  *batch
	sealed bool
	found  bool
	offset int64
	err    error // why the search failed
}

// note is a log line.
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

// withHint adds to a topic's error what an operator can do about it.
func withHint(err error) error {
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		return fmt.Errorf("%w (grant WRITE on the topic to our user)", err)
	}
	return err
}
