package checkpoint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Topics that do not exist are tried again by asking which ones do: brokers list
// them at once, however many rows and names wait, and only what is listed is swept.
//
// MaxTopics of them are parked one by one. Beyond that the table's unknown topics
// are parked as one scope: every topic of the table's rows but the known ones
// (park.knownTopics). A topic becomes known by being parked alone, when brokers list it
// and a row names it; that park's hand-back brings its rows back to the stream. So
// what is in memory is bounded by the topics that exist, whatever rows say.

// topicWait is what the park of a topic, or of a table's unknown topics, waits for.
type topicWait struct {
	// listed: brokers have listed the topic since it failed last, so it may be swept. Never of
	// unknown topics: those that are listed get parks of their own.
	listed bool
	// scan is what is looked for next. While it is scanNone brokers are to list topics first.
	scan scan
	// knownTopics, only set for unknown topics: the topics that are none of them. It only grows
	// while the park lasts, and has every topic with its own park.
	knownTopics map[outbox.Scope]bool
}

// scanRows is the most rows of a scan.
const scanRows = 1000

// topicSet is what is known of the clusters' topics.
type topicSet struct {
	proven map[outbox.Scope]bool      // those that took a record
	listed map[string]map[string]bool // those that brokers have, by cluster
	askAt  time.Time                  // when they may be asked again
}

// tookRecord remembers that the topic of a batch exists.
func (s *topicSet) tookRecord(r *outbox.Row) {
	topic := outbox.TopicScope(r.Cluster, r.Topic)
	if !s.proven[topic] {
		topic.Topic = strings.Clone(topic.Topic)
		s.proven[topic] = true
	}
}

// lists says that brokers have the row's topic.
func (s *topicSet) lists(r *outbox.Row) bool { return s.listed[r.Cluster][r.Topic] }

// parkTopic parks a topic that the sink blocked, or renews its backoff.
func (c *Core) parkTopic(o outbox.Outcome) {
	p := c.parks.of(o.Scope)
	switch {
	case p != nil && !o.Blocked:
		return
	case p == nil && c.parks.ofKind[outbox.ScopeTopic] >= c.cfg.MaxTopics && !c.isKnownTopic(o.Scope):
		c.parkUnknown(o)
		return
	}
	tries := 1
	if p != nil {
		tries = p.tries + 1
	}
	p = c.park(o.Scope, outbox.CauseTopic, o.Err.Error(), c.backoff(tries))
	p.tries = tries
	c.awaitAnswers(p)
}

// isKnownTopic says that rows of the topic may have come from the WAL since the unknown
// topics were parked: only a park of its own keeps their order.
func (c *Core) isKnownTopic(topic outbox.Scope) bool {
	return c.topics.proven[topic] || slices.ContainsFunc(c.parks.list, func(p *park) bool { return p.knownTopics[topic] })
}

// parkUnknown parks the unknown topics of the tables whose rows the sink gives back, now
// or later: once the topic is released, no row may pass those.
func (c *Core) parkUnknown(o outbox.Outcome) {
	for _, t := range c.cfg.Tables {
		if p := c.parks.of(outbox.TopicsScope(t)); p != nil && p.phase == sweeping || !c.givesBack(o, t) {
			continue
		}
		c.parkTopics(t, fmt.Sprintf("more than %d topics that rows name cannot be used: rows of further ones wait until brokers list their topics", c.cfg.MaxTopics))
	}
}

// parkTopics parks the unknown topics of a table.
func (c *Core) parkTopics(t *outbox.Table, reason string) *park {
	s := outbox.TopicsScope(t)
	before := c.parks.of(s)
	p := c.park(s, outbox.CauseTopic, reason, time.Time{})
	if before == nil {
		maps.Copy(p.knownTopics, c.topics.proven) // their rows go on coming from the WAL
	}
	c.awaitAnswers(p)
	return p
}

// unknownTopicsPark is the park of the table's unknown topics, if the row, which cannot
// become a record, names one and MaxKeys keys of the table are parked already. Otherwise
// rows that name forbidden topics would park the table with all its good rows.
func (c *Core) unknownTopicsPark(r *outbox.Row) *park {
	topic := outbox.TopicScope(r.Cluster, r.Topic)
	p := c.parks.of(outbox.TopicsScope(r.Table))
	switch {
	case c.tables.stateless, c.parks.keys[r.Table.String()] < c.cfg.MaxKeys, c.topics.proven[topic], c.parks.of(topic) != nil, p != nil && p.knownTopics[topic]:
		return nil
	case p == nil || p.phase != sweeping:
		return c.parkTopics(r.Table, fmt.Sprintf("more than %d keys are parked: further rows that cannot become a record and name an unknown topic wait together", c.cfg.MaxKeys))
	}
	return p
}

// givesBack says that the sink gives rows of the table back, now or later.
func (c *Core) givesBack(o outbox.Outcome, t *outbox.Table) bool {
	if slices.ContainsFunc(o.Rows, func(r *outbox.Row) bool { return r.Table == t }) {
		return true
	}
	for e := range c.rows.flying() {
		if e.state == inSink && e.row.Table == t && o.Scope.Contains(e.row) {
			return true
		}
	}
	return false
}

// parkIfListed parks an unknown topic alone, if brokers list it.
func (c *Core) parkIfListed(p *park, r *outbox.Row) *park {
	if p.awaiting > 0 || !c.topics.lists(r) {
		return p
	}
	return c.parkKnownTopic(r, "the topic was not known to exist")
}

// parkKnownTopic takes the row's topic out of the unknown ones.
func (c *Core) parkKnownTopic(r *outbox.Row, reason string) *park {
	s := outbox.TopicScope(r.Cluster, r.Topic)
	p := c.parks.of(s)
	if p == nil {
		p = c.park(s, outbox.CauseTopic, reason, time.Time{})
		p.listed = c.topics.lists(r)
		c.awaitAnswers(p)
	}
	return p
}

// ---- which topics exist

// wantTopics asks which topics exist, if a park waits for one.
func (c *Core) wantTopics() {
	if c.cfg.Shadow || c.parks.ofKind[outbox.ScopeTopic]+c.parks.ofKind[outbox.ScopeTopics] == 0 || c.topics.askAt.After(c.now) {
		return
	}
	if slices.ContainsFunc(c.parks.awake, c.awaitsList) {
		c.topics.askAt = c.now.Add(c.cfg.BackoffMin)
		c.ready.Commands = append(c.ready.Commands, outbox.Command{List: true})
	}
}

// awaitsList says that the park goes on when brokers have listed the topics.
func (c *Core) awaitsList(p *park) bool {
	switch p.Scope.Kind {
	case outbox.ScopeTopic:
		return p.phase == sweeping && !p.listed && !p.ready && p.scan == scanNone && !p.Next.After(c.now)
	case outbox.ScopeTopics:
		return p.phase == sweeping && p.scan == scanNone && !p.nextSweep.After(c.now)
	}
	return false
}

// Topics tells which topics of a cluster there are (see outbox.ClusterState).
func (c *Core) Topics(cluster string, names map[string]bool) {
	c.topics.listed[cluster] = names
	for _, p := range c.parks.list {
		switch {
		case !c.awaitsList(p):
		case p.Scope.Kind == outbox.ScopeTopics:
			p.scan = scanListed
		case p.Scope.Cluster != cluster:
		case names[p.Scope.Topic]:
			p.listed, p.nextSweep = true, time.Time{}
		case !p.nextSweep.After(c.now):
			p.scan = scanAny
		default:
			c.stillMissing(p)
		}
	}
}

// stillMissing: the topic is not listed.
func (c *Core) stillMissing(p *park) {
	p.tries++
	p.scan = scanNone
	c.parks.tryAt(p, c.backoff(p.tries))
}

// ---- scans

// scan is what is looked for among the rows of topics that cannot be used. Rows of
// a scan are never published: they only tell topics.
type scan uint8

const (
	scanNone   scan = iota // brokers are to list the topics first
	scanListed             // of unknown topics: rows whose topics are listed
	scanAny                // any row: without one the park can be handed back
)

// nextScan is the parks of the next scan: a table's unknown topics, or many topics.
func (c *Core) nextScan() (parks []*park) {
	for _, p := range c.parks.awake {
		switch {
		case p.scan == scanNone || p.phase != sweeping || p.awaiting > 0 || p.nextSweep.After(c.now):
		case p.knownTopics != nil:
			return []*park{p}
		case len(parks) < maxKeysASweep:
			parks = append(parks, p)
		}
	}
	return parks
}

func (c *Core) askScan(parks []*park) {
	c.generation++
	c.sweeps.scannedLast = true
	c.sweeps.page = &pageRequest{parks: parks, askedAt: c.generation, scan: true, at: c.now}
	c.ready.Sweep = &outbox.SweepRequest{Parts: c.scanParts(parks), Limit: min(c.cfg.PageRows, scanRows), MaxBytes: c.cfg.MaxBytes}
}

func (c *Core) scanParts(parks []*park) []outbox.SweepPart {
	p := parks[0]
	if p.knownTopics != nil {
		return []outbox.SweepPart{c.scanUnknown(p, c.tables.byName[p.Scope.Table])}
	}
	var include []outbox.Scope
	for _, p := range parks {
		include = append(include, p.Scope)
	}
	var parts []outbox.SweepPart
	for _, t := range c.cfg.Tables {
		if c.parks.of(outbox.TableScope(t)) == nil {
			parts = append(parts, outbox.SweepPart{Table: t, Include: include})
		}
	}
	return parts
}

func (c *Core) scanUnknown(p *park, t *outbox.Table) outbox.SweepPart {
	part := outbox.SweepPart{Table: t}
	for _, cluster := range slices.Sorted(maps.Keys(c.topics.listed)) {
		for _, topic := range slices.Sorted(maps.Keys(c.topics.listed[cluster])) {
			if s := outbox.TopicScope(cluster, topic); !p.knownTopics[s] {
				part.Include = append(part.Include, s)
			}
		}
	}
	if p.scan == scanAny || len(part.Include) == 0 {
		p.scan = scanAny
		return c.unknownPart(p, t)
	}
	return part
}

// unknownPart wants every row of the park.
func (c *Core) unknownPart(p *park, t *outbox.Table) outbox.SweepPart {
	return outbox.SweepPart{Table: t, Include: []outbox.Scope{outbox.TableScope(t)}, Exclude: sortedTopics(p.knownTopics)}
}

// knownTopicsOf are the only topics whose rows may be read, where a table's unknown ones
// are parked.
func (c *Core) knownTopicsOf(t *outbox.Table) []outbox.Scope {
	if p := c.parks.of(outbox.TopicsScope(t)); p != nil {
		return sortedTopics(p.knownTopics)
	}
	return nil
}

// sortedTopics is never nil.
func sortedTopics(set map[outbox.Scope]bool) []outbox.Scope {
	topics := slices.AppendSeq(make([]outbox.Scope, 0, len(set)), maps.Keys(set))
	slices.SortFunc(topics, func(a, b outbox.Scope) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Topic, b.Topic))
	})
	return topics
}

func (c *Core) scanned(s *pageRequest, page *outbox.Page, ended bool) {
	found := map[outbox.Scope]bool{}
	for _, r := range page.Rows {
		found[outbox.TopicScope(r.Cluster, r.Topic)] = true
	}
	for _, p := range s.parks {
		switch {
		case c.parks.of(p.Scope) != p || p.failedAt > s.askedAt || p.phase != sweeping: // it has failed since
		case p.knownTopics != nil:
			c.scannedUnknown(p, s, page, ended)
		case found[p.Scope]:
			c.stillMissing(p)
			p.nextSweep = c.scanAgain(s)
		case !page.More:
			c.foundNone(p, ended)
		}
	}
}

// scanAgain is when to scan again: the database spends at most a twentieth of its time on
// scans, unless that means to wait beyond the longest backoff.
func (c *Core) scanAgain(s *pageRequest) time.Time {
	return c.now.Add(max(c.cfg.WatchEvery, min(20*c.now.Sub(s.at), c.cfg.BackoffMax)))
}

// foundNone: nothing is left of the park, unless transactions have yet to end.
func (c *Core) foundNone(p *park, ended bool) {
	p.ready = ended
	if ended {
		p.scan = scanNone
	}
	p.nextSweep = c.now.Add(sweepPause)
}

// scannedUnknown: topics that are found are parked alone, the missing ones only if they
// are few. Rows that cannot become a record are left to the hand-back.
func (c *Core) scannedUnknown(p *park, s *pageRequest, page *outbox.Page, ended bool) {
	few := !page.More && len(page.Rows) <= c.cfg.MaxTopics-c.parks.ofKind[outbox.ScopeTopic]
	found, missing := 0, 0
	for _, r := range page.Rows {
		switch {
		case !p.takes(r): // known meanwhile
		case p.scan == scanListed, few && r.Err == nil:
			c.parkKnownTopic(r, "the topic was not known to exist")
			found++
		case r.Err == nil:
			missing++
		}
	}
	switch {
	case found > 0: // there may be more
		p.nextSweep = c.now.Add(sweepPause)
	case p.scan == scanListed:
		p.scan = scanAny
	case len(page.Rows) == 0, missing == 0 && c.parks.keys[p.Scope.Table] <= c.cfg.MaxKeys/2:
		c.foundNone(p, ended)
	default:
		p.scan, p.nextSweep = scanNone, c.scanAgain(s)
	}
}
