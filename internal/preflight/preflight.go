// Package preflight examines, before anything is streamed, everything that a stream depends on. It reports
// what is wrong, why it matters and what fixes it.
//
// It has two halves. Probes gather facts from the server, the tables and the Kafka clusters, at the same time
// and each with its own timeout. Judgments are pure functions from facts to findings. The package changes
// nothing, takes no leadership, publishes nothing, and never uses a stream's transactional id to produce,
// which would fence a leader. The commands check and config validate call it.
package preflight

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/journal"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/secret"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Stream is one stream to examine, as it would run.
type Stream struct {
	Name string
	// DSN is the connection string of the role that reads and marks rows, with pgx parameters.
	DSN string
	// Password is that role's password, if the DSN does not have it.
	Password secret.Reader
	// Replication connects as the role that streams.
	Replication replication.Config
	Tables      []Table
	// Shadow: the stream publishes nothing.
	Shadow    bool
	WALBudget uint64 // bytes
	// PoolConnections is how many connections of DSN the stream keeps.
	PoolConnections int
	// Kafka are the clusters that rows may go to.
	Kafka map[string]sink.Config
	// Once, if set, selects exactly-once delivery.
	Once *Once
}

// Once is the configuration of exactly-once delivery.
type Once struct {
	// Journals are the journals' topics by Kafka cluster.
	Journals map[string]journal.Topic
	// Timeout is the timeout of Kafka transactions.
	Timeout time.Duration
}

// Table is one outbox table.
type Table struct {
	*outbox.Table
	// Native: init can make the table and its index.
	Native bool
}

// Options are the options of a run. Zero fields take their defaults.
type Options struct {
	// Timeout bounds one probe. Default 10 s.
	Timeout time.Duration
	// Now is the clock that the server's clock is compared with. Default time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Level is how serious a finding is.
type Level string

// The levels.
const (
	OK   Level = "OK"
	Warn Level = "WARN" // it works, but hardly as intended
	Fail Level = "FAIL" // a person has to act, or rows will not be delivered
	Skip Level = "SKIP" // not examined; the finding says why
)

// Finding is what one check found about one subject.
type Finding struct {
	// Check is the name of the check.
	Check string `json:"check"`
	// Level is `OK`, `WARN`, `FAIL` or `SKIP`.
	Level Level `json:"level"`
	// Stream is the one that it is about. Missing: it is about a whole Kafka cluster.
	Stream string `json:"stream,omitempty"`
	// Subject is the role, slot, table, cluster, broker or topic that it is about.
	Subject string `json:"subject,omitempty"`
	// Found is what is there, in numbers where there are any.
	Found string `json:"found"`
	// Why it matters; of WARN and FAIL.
	Why string `json:"why,omitempty"`
	// Hints are the statements, settings or commands that fix it, in order; of
	// WARN and FAIL.
	Hints []string `json:"hints,omitempty"`
	// Fix is what `check --fix` can create for it: `schema`, `publication`, `slot` or
	// `index`.
	Fix string `json:"fix,omitempty"`
	// Unseen is true of SKIP and FAIL where the check could not look: another try
	// may work.
	Unseen bool `json:"unseen,omitempty"`
}

// What Finding.Fix may be.
const (
	FixSchema      = "schema"
	FixPublication = "publication"
	FixSlot        = "slot"
	FixIndex       = "index"
)

// Report is the outcome of a run.
type Report struct {
	// Version of this layout; it is raised when a field changes its meaning.
	Version int `json:"version"`
	// At is when it looked.
	At time.Time `json:"at"`
	// Summary is how many findings there are of each level.
	Summary Summary `json:"summary"`
	// Findings are what the checks found.
	Findings []Finding `json:"findings"`
}

// Summary counts findings by level.
type Summary struct {
	// OK is how many are OK.
	OK int `json:"ok"`
	// Warn is how many are WARN.
	Warn int `json:"warn"`
	// Fail is how many are FAIL.
	Fail int `json:"fail"`
	// Skip is how many are SKIP.
	Skip int `json:"skip"`
	// Unseen is how many of them could not look.
	Unseen int `json:"unseen"`
}

// MustAct reports whether there is a finding that only a person can fix.
func (r *Report) MustAct() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level == Fail && !f.Unseen })
}

// Incomplete reports whether something could not be examined.
func (r *Report) Incomplete() bool { return r.Summary.Unseen > 0 }

// Run examines all streams at the same time. It returns when every probe has answered or timed out.
func Run(ctx context.Context, streams []Stream, o Options) Report {
	o = o.withDefaults()
	found := make([][]Finding, len(streams))
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() { found[i] = Judge(Gather(ctx, &streams[i], o)) })
	}
	all.Wait()
	return report(o.Now(), slices.Concat(found...))
}

// report merges equal findings about a Kafka cluster that several streams made.
func report(at time.Time, all []Finding) Report {
	r := Report{Version: 1, At: at.UTC().Truncate(time.Millisecond), Findings: []Finding{}}
	counts := map[Level]*int{OK: &r.Summary.OK, Warn: &r.Summary.Warn, Fail: &r.Summary.Fail, Skip: &r.Summary.Skip}
	for _, f := range all {
		alike := func(g Finding) bool {
			return f.Check == g.Check && f.Stream == g.Stream && f.Subject == g.Subject && f.Level == g.Level && f.Found == g.Found
		}
		if f.Stream == "" && slices.ContainsFunc(r.Findings, alike) {
			continue
		}
		r.Findings = append(r.Findings, f)
		*counts[f.Level]++
		if f.Unseen {
			r.Summary.Unseen++
		}
	}
	return r
}
