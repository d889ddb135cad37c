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

// To retry topics that do not exist, we ask brokers for a list of all topics. One answer is enough, however
// many rows and topic names wait, and only listed topics are swept.
//
// Up to MaxTopics topics are parked one by one. Beyond that a table's unknown topics are parked as one scope:
// all topics that rows of the table name, except the known ones (park.knownTopics). A topic becomes known
// when brokers list it and a row names it: then it gets a park of its own, and the hand-back of that park
// brings its rows back to the stream. So the number of existing topics bounds what is in memory, whatever
// topics rows name.

// topicWait is the part of a park that only a topic, or the unknown topics of a table, have: what the park
// waits for.
type topicWait struct {
	// listed says that brokers have listed the topic since it last failed, so it may be swept. It stays false
	// for unknown topics, because each of them that brokers list gets a park of its own.
	listed bool
	// scan says which rows are looked for next; scanNone: brokers have to list the topics first.
	scan scan
	// knownTopics is set only in the park of unknown topics: the topics that the park leaves out. It only
	// grows while the park lasts, and contains every topic with a park of its own.
	knownTopics map[outbox.Scope]bool
}

// scanRows is the maximum number of rows that a scan reads.
const scanRows = 1000

// topicSet is what this process knows about the clusters' topics.
type topicSet struct {
	proven map[outbox.Scope]bool      // topics that took a record
	listed map[string]map[string]bool // topics that brokers listed last, by cluster
	askAt  time.Time                  // earliest time of the next request for a list
}

// tookRecord remembers that the row's topic exists, because it took a record.
func (s *topicSet) tookRecord(r *outbox.Row) {
	topic := outbox.TopicScope(r.Cluster, r.Topic)
	if !s.proven[topic] {
		topic.Topic = strings.Clone(topic.Topic)
		s.proven[topic] = true
	}
}

// lists reports whether brokers have listed the row's topic.
func (s *topicSet) lists(r *outbox.Row) bool { return s.listed[r.Cluster][r.Topic] }

// parkTopic parks a topic that the sink has blocked, or parks it again with a longer backoff.
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

// isKnownTopic reports whether rows of the topic may have come from the WAL since the unknown topics were
// parked. Such a topic needs a park of its own, to keep the order of its rows.
func (c *Core) isKnownTopic(topic outbox.Scope) bool {
	return c.topics.proven[topic] || slices.ContainsFunc(c.parks.list, func(p *park) bool { return p.knownTopics[topic] })
}

// parkUnknown parks the unknown topics of the tables whose rows the sink gives back, now or later. Once the
// topic is released, later rows must not pass the rows that were given back.
func (c *Core) parkUnknown(o outbox.Outcome) {
	for _, t := range c.cfg.Tables {
		if p := c.parks.of(outbox.TopicsScope(t)); p != nil && p.phase == sweeping || !c.givesBack(o, t) {
			continue
		}
		c.parkTopics(t, fmt.Sprintf("more than %d topics that rows name cannot be used: rows of further ones wait until brokers list their topics", c.cfg.MaxTopics))
	}
}

// parkTopics parks the unknown topics of a table as one scope.
func (c *Core) parkTopics(t *outbox.Table, reason string) *park {
	s := outbox.TopicsScope(t)
	before := c.parks.of(s)
	p := c.park(s, outbox.CauseTopic, reason, time.Time{})
	if before == nil {
		maps.Copy(p.knownTopics, c.topics.proven) // rows of these topics still come from the WAL
	}
	c.awaitAnswers(p)
	return p
}

// unknownTopicsPark returns the park of the table's unknown topics for a row that cannot become a record, or
// nil. The row is left under that park if it names an unknown topic and MaxKeys keys of the table are parked
// already. Otherwise rows that name forbidden topics would park the table with all its good rows.
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

// givesBack reports whether the sink gives back rows of the table, now or later.
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

// parkIfListed parks the row's topic by itself if brokers list it, and returns that park. Otherwise it
// returns p, the park of the unknown topics.
func (c *Core) parkIfListed(p *park, r *outbox.Row) *park {
	if p.awaiting > 0 || !c.topics.lists(r) {
		return p
	}
	return c.parkKnownTopic(r, "the topic was not known to exist")
}

// parkKnownTopic parks the row's topic by itself, so that it is no longer one of the unknown topics.
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

// wantTopics asks brokers for the list of topics, if a park waits for it.
func (c *Core) wantTopics() {
	if c.cfg.Shadow || c.parks.ofKind[outbox.ScopeTopic]+c.parks.ofKind[outbox.ScopeTopics] == 0 || c.topics.askAt.After(c.now) {
		return
	}
	if slices.ContainsFunc(c.parks.awake, c.awaitsList) {
		c.topics.askAt = c.now.Add(c.cfg.BackoffMin)
		c.ready.Commands = append(c.ready.Commands, outbox.Command{List: true})
	}
}

// awaitsList reports whether the park waits for brokers to list the topics.
func (c *Core) awaitsList(p *park) bool {
	switch p.Scope.Kind {
	case outbox.ScopeTopic:
		return p.phase == sweeping && !p.listed && !p.sweptOut && p.scan == scanNone && !p.Next.After(c.now)
	case outbox.ScopeTopics:
		return p.phase == sweeping && p.scan == scanNone && !p.nextSweep.After(c.now)
	}
	return false
}

// Topics takes the list of the topics that exist in a cluster (see outbox.ClusterState).
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

// stillMissing sets the next try of a topic that is still not there.
func (c *Core) stillMissing(p *park) {
	p.tries++
	p.scan = scanNone
	c.parks.tryAt(p, c.backoff(p.tries))
}

// ---- scans

// scan says which rows of unusable topics are looked for. The rows of a scan are never published. They only
// tell which topics rows name.
type scan uint8

const (
	scanNone   scan = iota // nothing is looked for: brokers have to list the topics first
	scanListed             // for unknown topics: rows whose topics brokers list
	scanAny                // all rows of the park; if there is none, the park can be handed back
)

// nextScan returns the parks of the next scan: the unknown topics of one table, or many single topics.
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

// unknownPart returns the part of a page that has all rows of the park of unknown topics.
func (c *Core) unknownPart(p *park, t *outbox.Table) outbox.SweepPart {
	return outbox.SweepPart{Table: t, Include: []outbox.Scope{outbox.TableScope(t)}, Exclude: sortedTopics(p.knownTopics)}
}

// knownTopicsOf returns the only topics whose rows may be read while the table's unknown topics are parked.
// It returns nil if they are not parked: then rows of all topics may be read.
func (c *Core) knownTopicsOf(t *outbox.Table) []outbox.Scope {
	if p := c.parks.of(outbox.TopicsScope(t)); p != nil {
		return sortedTopics(p.knownTopics)
	}
	return nil
}

// sortedTopics returns the topics in order. The result is never nil, since nil would allow all topics
// (SweepPart.Known).
func sortedTopics(set map[outbox.Scope]bool) []outbox.Scope {
	topics := slices.AppendSeq(make([]outbox.Scope, 0, len(set)), maps.Keys(set))
	slices.SortFunc(topics, func(a, b outbox.Scope) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Topic, b.Topic))
	})
	return topics
}

// scanned takes the page of a scan.
func (c *Core) scanned(s *pageRequest, page *outbox.Page, ended bool) {
	found := map[outbox.Scope]bool{}
	for _, r := range page.Rows {
		found[outbox.TopicScope(r.Cluster, r.Topic)] = true
	}
	for _, p := range s.parks {
		switch {
		case c.parks.of(p.Scope) != p || p.failedAt > s.askedAt || p.phase != sweeping: // the page is out of date
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

// scanAgain returns the time of the next scan. Scans may take at most a twentieth of the database's time,
// but the wait is never longer than the longest backoff, or WatchEvery if that is longer.
func (c *Core) scanAgain(s *pageRequest) time.Time {
	return c.now.Add(max(c.cfg.WatchEvery, min(20*c.now.Sub(s.at), c.cfg.BackoffMax)))
}

// foundNone takes the news that no row of the park is left. The park is ready for its hand-back once the
// transactions that may still bring such rows have ended.
func (c *Core) foundNone(p *park, ended bool) {
	p.sweptOut = ended
	if ended {
		p.scan = scanNone
	}
	p.nextSweep = c.now.Add(sweepPause)
}

// scannedUnknown takes the page of a scan for unknown topics. It gives listed topics that rows name a park
// of their own. It does the same for missing topics, but only if they are few. Rows that cannot become a
// record are left to the hand-back.
func (c *Core) scannedUnknown(p *park, s *pageRequest, page *outbox.Page, ended bool) {
	few := !page.More && len(page.Rows) <= c.cfg.MaxTopics-c.parks.ofKind[outbox.ScopeTopic]
	found, missing := 0, 0
	for _, r := range page.Rows {
		switch {
		case !p.takes(r): // the topic has become known since
		case p.scan == scanListed, few && r.Err == nil:
			c.parkKnownTopic(r, "the topic was not known to exist")
			found++
		case r.Err == nil:
			missing++
		}
	}
	switch {
	case found > 0: // there may be more rows
		p.nextSweep = c.now.Add(sweepPause)
	case p.scan == scanListed:
		p.scan = scanAny
	case len(page.Rows) == 0, missing == 0 && c.parks.keys[p.Scope.Table] <= c.cfg.MaxKeys/2:
		c.foundNone(p, ended)
	default:
		p.scan, p.nextSweep = scanNone, c.scanAgain(s)
	}
}
