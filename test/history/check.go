package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rules say what a run may do beyond the invariants.
type Rules struct {
	// Duplicates is the maximum number of records that repeat an earlier one. A clean run has none. After a
	// crash, it is at most the number of rows that were in flight.
	Duplicates int
	// Late reports whether a row may be late (requeued, scheduled, missed by the stream). The check of the
	// order leaves such rows out.
	Late func(Insert) bool
	// MayFail reports whether a row may end FAILED, because its own content is refused; nil: no row may.
	MayFail func(Insert) bool
	// Unfinished says that the history ends in the middle of a run, as after a kill: rows may still be
	// PENDING.
	Unfinished bool
	// Deletes says that rows are deleted on success, so a row that is gone counts as SENT.
	Deletes bool
	// Repartitioned says that the topic got more partitions, so that keys have moved. The order is checked
	// within each partition.
	Repartitioned bool
	// Missed: the publication was away on a server that then passes rows over, so
	// that the stream may have missed some: I6 excepts them, and is not judged.
	Missed bool
	// WALBudget is how many bytes of the WAL the slot may retain, and Memory is how many bytes of memory a
	// process may have; 0: not checked.
	WALBudget, Memory uint64
	// Stateless says that the table keeps no state: only the topic shows what became of a row.
	Stateless bool
}

// Violation is a broken invariant with the shortest story that shows it.
type Violation struct {
	Invariant string // I1, I2, …, or value
	What      string
	Story     []string
}

func (v Violation) String() string {
	return v.Invariant + ": " + v.What + "\n    " + strings.Join(v.Story, "\n    ")
}

// Report is violations for people: a few of each invariant, then counts.
func Report(violations []Violation) string {
	const each = 3
	var b strings.Builder
	seen := map[string]int{}
	var order []string
	for _, v := range violations {
		if seen[v.Invariant] == 0 {
			order = append(order, v.Invariant)
		}
		if seen[v.Invariant]++; seen[v.Invariant] <= each {
			fmt.Fprintln(&b, v)
		}
	}
	for _, name := range order {
		fmt.Fprintf(&b, "%s is violated %d times\n", name, seen[name])
	}
	return b.String()
}

// Check checks a history against I1 to I10 of docs/internals/design.md, and checks that each record is as
// its writer wrote it.
func Check(h *History, r Rules) []Violation {
	c := newChecker(h, r)
	c.checkRecords()
	c.checkRows()
	c.checkOrder()
	c.checkRewrites()
	c.checkSamples()
	return c.found
}

type checker struct {
	h     *History
	rules Rules
	found []Violation

	inserts map[string]*Insert
	state   map[string]Status
	// records by ref, in the order of their topic and partition.
	records map[string][]*Record
}

func newChecker(h *History, r Rules) *checker {
	c := &checker{
		h: h, rules: r,
		inserts: make(map[string]*Insert, len(h.Inserts)),
		state:   make(map[string]Status, len(h.States)),
		records: make(map[string][]*Record, len(h.Records)),
	}
	for i := range h.Inserts {
		c.inserts[h.Inserts[i].Ref] = &h.Inserts[i]
	}
	for _, s := range h.States {
		c.state[s.Ref] = s.Status
	}
	slices.SortStableFunc(h.Records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	for i := range h.Records {
		rec := &h.Records[i]
		c.records[rec.Ref] = append(c.records[rec.Ref], rec)
	}
	return c
}

func (c *checker) violated(invariant, what, ref string, more ...string) {
	c.found = append(c.found, Violation{invariant, what, append(c.story(ref), more...)})
}

// story is everything that is known of a row, in the order of time.
func (c *checker) story(ref string) []string {
	var s []string
	if in := c.inserts[ref]; in != nil {
		s = append(s, fmt.Sprintf("insert %s, %s, key %s, place %d, %s", ref, in.Table, keyText(in.Key, in.Keyed), in.Seq, in.Outcome)+when(in.At))
	} else {
		s = append(s, fmt.Sprintf("insert %q is in no writer's log", ref))
	}
	const most = 4
	for i, rec := range c.records[ref] {
		if i == most {
			s = append(s, fmt.Sprintf("… and %d more records", len(c.records[ref])-most))
			break
		}
		s = append(s, "record "+rec.String())
	}
	if len(c.records[ref]) == 0 {
		s = append(s, "not in the topic")
	}
	if status, there := c.state[ref]; there {
		return append(s, "the table says "+string(status))
	}
	return append(s, "not in the table")
}

func (r *Record) String() string {
	return fmt.Sprintf("%s/%d@%d, key %s", r.Topic, r.Partition, r.Offset, keyText(r.Key, r.Keyed)) + when(r.At)
}

// when says when something was, if it is known.
func when(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(", at 15:04:05.000")
}

func keyText(key string, keyed bool) string {
	if !keyed {
		return "null"
	}
	return fmt.Sprintf("%q", key)
}

// checkRecords looks from the topic's side: I4, I10, and what the records hold.
func (c *checker) checkRecords() {
	duplicates, worst := 0, ""
	for ref, recs := range c.records {
		in := c.inserts[ref]
		if in == nil {
			c.violated("value", "a record that no writer wrote", ref)
			continue
		}
		if in.Outcome == RolledBack {
			c.violated("I10", "a row of a rolled-back transaction was published", ref)
		}
		for _, rec := range recs {
			if rec.Topic != in.Topic || rec.Key != in.Key || rec.Keyed != in.Keyed || rec.Seq != in.Seq {
				c.violated("value", "a record is not what its writer wrote: "+rec.String(), ref)
			}
			if rec.EventID != recs[0].EventID {
				c.violated("I4", "a duplicate has another event id: "+rec.EventID+" after "+recs[0].EventID, ref)
			}
		}
		if n := len(recs) - 1; n > 0 {
			duplicates += n
			worst = ref
		}
	}
	if duplicates > c.rules.Duplicates {
		c.violated("I4", fmt.Sprintf("%d duplicates, %d are allowed; one of them:", duplicates, c.rules.Duplicates), worst)
	}
}

// checkRows looks from the table's side: I1, I2, I7.
func (c *checker) checkRows() {
	for i := range c.h.Inserts {
		in := &c.h.Inserts[i]
		status, there := c.state[in.Ref]
		published := len(c.records[in.Ref]) > 0
		switch {
		case in.Outcome == RolledBack || in.Outcome == TakenBack:
			if there {
				c.violated("test", "a row that was "+in.Outcome.String()+" is in the table", in.Ref)
			}
		case c.rules.Stateless:
			if in.Outcome == Committed && !published && !c.rules.Unfinished {
				c.violated("I1", "a committed row is not in the topic", in.Ref)
			}
		case !there:
			c.checkGone(in, published)
		default:
			c.checkState(in, status, published)
		}
	}
}

func (c *checker) checkGone(in *Insert, published bool) {
	switch {
	case in.Outcome == Unknown && !published:
	case in.Outcome == Unknown && !c.rules.Deletes:
		c.violated("I10", "a row that was not committed was published", in.Ref)
	case !c.rules.Deletes:
		c.violated("I1", "a committed row is gone from the table", in.Ref)
	case !published:
		c.violated("I1", "a committed row was deleted and is not in the topic", in.Ref)
	}
}

func (c *checker) checkState(in *Insert, status Status, published bool) {
	switch status {
	case Sent:
		if !published {
			c.violated("I2", "a row is SENT and not in the topic", in.Ref)
		}
	case Failed:
		if c.rules.MayFail == nil || !c.rules.MayFail(*in) {
			c.violated("I7", "a row is FAILED though nothing is wrong with it", in.Ref)
		}
	default:
		if !c.rules.Unfinished {
			c.violated("I1", "a committed row is neither SENT nor FAILED", in.Ref)
		}
	}
}

// lane is where order is promised.
type lane struct {
	table, topic, key string
	partition         int32 // of a topic that was repartitioned
}

// checkOrder is I3: first publications in the order of their places.
func (c *checker) checkOrder() {
	last := map[lane]*Record{}
	seen := make(map[string]bool, len(c.records))
	for i := range c.h.Records {
		rec := &c.h.Records[i]
		in := c.inserts[rec.Ref]
		// What was taken back has given its place to another row.
		if in == nil || !in.Keyed || in.Seq == 0 || seen[rec.Ref] || in.Outcome == TakenBack || c.rules.Late != nil && c.rules.Late(*in) {
			continue
		}
		seen[rec.Ref] = true
		at := lane{table: in.Table, topic: rec.Topic, key: rec.Key}
		if c.rules.Repartitioned {
			at.partition = rec.Partition
		}
		before := last[at]
		switch {
		case before == nil:
		case before.Partition != rec.Partition:
			c.violated("I3", "records of one key lie in two partitions", rec.Ref, "beside:", strings.Join(c.story(before.Ref), "; "))
		case c.inserts[before.Ref].Seq > in.Seq:
			c.violated("I3", "a row was published after a later row of its key", rec.Ref, "after:", strings.Join(c.story(before.Ref), "; "))
			continue // compare with the highest so far
		}
		last[at] = rec
	}
}

// checkRewrites is I5.
func (c *checker) checkRewrites() {
	for _, w := range c.h.Rewrites {
		c.violated("I5", fmt.Sprintf("a terminal state was overwritten: %s → %s", w.From, w.To), w.Ref)
	}
}
