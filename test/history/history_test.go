package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// good returns a history without fault: two keys, a rolled-back row, a row without
// key, an unknown outcome that was committed and one that was not.
func good() *History {
	h := &History{}
	offset := int64(0)
	put := func(ref, key string, seq int64, outcome Outcome, there bool) {
		h.Inserts = append(h.Inserts, Insert{Ref: ref, Table: "public.outbox", Topic: "t", Key: key, Keyed: key != "", Seq: seq, Outcome: outcome})
		if !there {
			return
		}
		h.Records = append(h.Records, Record{Ref: ref, Topic: "t", Partition: int32(len(key)), Offset: offset, Key: key, Keyed: key != "", Seq: seq, EventID: "e" + ref})
		h.States = append(h.States, State{ref, Sent})
		offset++
	}
	put("a1", "a", 1, Committed, true)
	put("a2x", "a", 2, RolledBack, false)
	put("b1", "b", 1, Committed, true)
	put("a2", "a", 2, Committed, true)
	put("n1", "", 0, Committed, true)
	put("b2", "b", 2, Unknown, true)
	put("b3x", "b", 3, Unknown, false)
	put("a3", "a", 3, Committed, true)
	return h
}

// without takes the record of a ref away, and gives it back.
func (h *History) without(ref string) Record {
	i := slices.IndexFunc(h.Records, func(r Record) bool { return r.Ref == ref })
	rec := h.Records[i]
	h.Records = slices.Delete(h.Records, i, i+1)
	return rec
}

func (h *History) record(ref string) *Record {
	return &h.Records[slices.IndexFunc(h.Records, func(r Record) bool { return r.Ref == ref })]
}

func (h *History) states(ref string, s Status) {
	h.States[slices.IndexFunc(h.States, func(s State) bool { return s.Ref == ref })].Status = s
}

func (h *History) gone(ref string) {
	h.States = slices.DeleteFunc(h.States, func(s State) bool { return s.Ref == ref })
}

// samples returns the samples of a run in which the row a2 waits for a while.
func samples() []Sample {
	return []Sample{
		{PID: 7, Confirmed: 100, Retained: 20, Pending: []string{"a1"}, End: 120, Memory: 90},
		{PID: 7, Confirmed: 100, Retained: 140, Pending: []string{"a1", "a2"}, End: 240, Memory: 100},
		{PID: 7, Confirmed: 110, Retained: 140, Pending: []string{"a2"}, End: 250, Memory: 95},
	}
}

func TestAGoodHistoryPasses(t *testing.T) {
	if v := Check(good(), Rules{}); len(v) > 0 {
		t.Fatal(Report(v))
	}
}

func TestForgedHistoriesAreFound(t *testing.T) {
	again := func(h *History, ref string) *Record {
		rec := *h.record(ref)
		rec.Offset = 100
		h.Records = append(h.Records, rec)
		return &h.Records[len(h.Records)-1]
	}
	only := func(ref string) func(Insert) bool { return func(in Insert) bool { return in.Ref == ref } }
	for name, c := range map[string]struct {
		forge func(h *History)
		rules Rules
		want  string // the invariant; empty: none
		who   string // a ref in the story
	}{
		"a row is left PENDING":                    {func(h *History) { h.without("a2"); h.states("a2", Pending) }, Rules{}, "I1", "a2"},
		"the same in the middle of a run":          {func(h *History) { h.without("a3"); h.states("a3", Pending) }, Rules{Unfinished: true}, "", ""},
		"a row vanished":                           {func(h *History) { h.without("a2"); h.gone("a2") }, Rules{}, "I1", "a2"},
		"a row was deleted on success":             {func(h *History) { h.gone("a2") }, Rules{Deletes: true}, "", ""},
		"a row was deleted unpublished":            {func(h *History) { h.without("a2"); h.gone("a2") }, Rules{Deletes: true}, "I1", "a2"},
		"SENT and not in the topic":                {func(h *History) { h.without("b1") }, Rules{}, "I2", "b1"},
		"SENT and not in the topic, in the middle": {func(h *History) { h.without("b1") }, Rules{Unfinished: true}, "I2", "b1"},
		"an unknown outcome, SENT, not there":      {func(h *History) { h.without("b2") }, Rules{}, "I2", "b2"},
		"not in the topic, nobody keeps state":     {func(h *History) { h.without("a2") }, Rules{Stateless: true}, "I1", "a2"},
		"out of order":                             {func(h *History) { h.record("a2").Offset = 50; h.record("a3").Offset = 49 }, Rules{}, "I3", "a2"},
		"late by nature":                           {func(h *History) { h.record("a2").Offset = 50 }, Rules{Late: only("a2")}, "", ""},
		"a key in two partitions":                  {func(h *History) { h.record("a3").Partition = 7 }, Rules{}, "I3", "a3"},
		"a key has moved":                          {func(h *History) { h.record("a3").Partition = 7 }, Rules{Repartitioned: true}, "", ""},
		"order is judged by the first publication": {func(h *History) { again(h, "a1") }, Rules{Duplicates: 1}, "", ""},
		"a duplicate":                              {func(h *History) { again(h, "a1") }, Rules{}, "I4", "a1"},
		"a duplicate with another event id":        {func(h *History) { again(h, "a1").EventID = "other" }, Rules{Duplicates: 1}, "I4", "a1"},
		"a terminal state overwritten":             {func(h *History) { h.Rewrites = []Rewrite{{"a1", "SENT", "FAILED"}} }, Rules{}, "I5", "a1"},
		"FAILED without reason":                    {func(h *History) { h.without("a1"); h.states("a1", Failed) }, Rules{}, "I7", "a1"},
		"FAILED with reason":                       {func(h *History) { h.without("a1"); h.states("a1", Failed) }, Rules{MayFail: only("a1")}, "", ""},
		"a rolled-back row in the topic": {func(h *History) {
			h.Records = append(h.Records, Record{Ref: "a2x", Topic: "t", Partition: 1, Offset: 99, Key: "a", Keyed: true, Seq: 2})
		}, Rules{}, "I10", "a2x"},
		"an uncommitted row in the topic": {func(h *History) {
			h.Records = append(h.Records, Record{Ref: "b3x", Topic: "t", Partition: 1, Offset: 99, Key: "b", Keyed: true, Seq: 3})
		}, Rules{}, "I10", "b3x"},
		"a row taken back, delivered before": {func(h *History) {
			h.gone("a2")
			h.Inserts[3].Outcome = TakenBack
			h.record("a3").Seq, h.Inserts[7].Seq = 2, 2
		}, Rules{}, "", ""},
		"a row taken back that is there": {func(h *History) { h.Inserts[3].Outcome = TakenBack }, Rules{}, "test", "a2"},
		"a record from nowhere":          {func(h *History) { h.Records = append(h.Records, Record{Topic: "t", Partition: 1, Offset: 99}) }, Rules{}, "value", ""},
		"another key":                    {func(h *History) { h.record("a1").Key = "b" }, Rules{}, "value", "a1"},
		"a key lost":                     {func(h *History) { r := h.record("a1"); r.Key, r.Keyed = "", false }, Rules{}, "value", "a1"},
		"another topic":                  {func(h *History) { h.record("a1").Topic = "u" }, Rules{}, "value", "a1"},

		"samples of a good run": {func(h *History) { h.Samples = samples() }, Rules{WALBudget: 500, Memory: 100}, "", ""},
		"confirmed past a PENDING row": {func(h *History) {
			h.Samples = samples()
			h.Samples[2].Confirmed = 240
		}, Rules{}, "I6", "a2"},
		"the same, where the publication was away": {func(h *History) {
			h.Samples = samples()
			h.Samples[2].Confirmed = 240
		}, Rules{Missed: true}, "", ""},
		"the same of a row that is late by nature": {func(h *History) {
			h.Samples = samples()
			h.Samples[2].Confirmed = 240
		}, Rules{Late: only("a2")}, "", ""},
		// It may have been committed between the two reads of the only sample.
		"confirmed past a row seen once": {func(h *History) {
			h.Samples = samples()[:2]
			h.Samples[1].Confirmed, h.Samples[1].Pending = 1000, []string{"a2"}
		}, Rules{}, "", ""},
		"the row is parked": {func(h *History) {
			h.Samples = samples()
			h.Samples[2].Confirmed, h.Samples[2].Pending = 240, nil
		}, Rules{}, "", ""},
		"the park goes and the row is PENDING": {func(h *History) {
			h.Samples = append(samples(), Sample{PID: 7, Confirmed: 350, Pending: []string{"a2"}, End: 400})
			h.Samples[2].Confirmed, h.Samples[2].Pending = 240, nil
		}, Rules{}, "I6", "a2"},
		"there is no slot": {func(h *History) {
			h.Samples = samples()
			h.Samples[2].PID, h.Samples[2].Confirmed = 0, 0
		}, Rules{}, "", ""},
		"confirmed backwards": {func(h *History) {
			h.Samples = samples()
			h.Samples[2].Confirmed = 90
		}, Rules{}, "I6", "0/5A after 0/64"},
		"backwards on another connection": {func(h *History) {
			h.Samples = samples()
			h.Samples[2].PID, h.Samples[2].Confirmed = 8, 90
		}, Rules{}, "", ""},
		"over the budget": {func(h *History) {
			h.Samples = samples()
			h.Samples[2].Retained = 600
		}, Rules{WALBudget: 500}, "I8", "600 bytes after 140"},
		"over the budget from the connection's start": {func(h *History) {
			h.Samples = samples()
			h.Samples[1].PID, h.Samples[1].Retained, h.Samples[2].PID, h.Samples[2].Retained = 8, 700, 8, 600
		}, Rules{WALBudget: 500}, "", ""},
		"much memory": {func(h *History) {
			h.Samples = samples()
			h.Samples[1].Memory = 101
		}, Rules{Memory: 100}, "I9", "sample 1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			c.forge(h)
			found := Check(h, c.rules)
			if c.want == "" {
				if len(found) > 0 {
					t.Fatalf("found:\n%s", Report(found))
				}
				return
			}
			i := slices.IndexFunc(found, func(v Violation) bool {
				return v.Invariant == c.want && strings.Contains(v.What+"|"+strings.Join(v.Story, "\n"), c.who)
			})
			if i < 0 {
				t.Fatalf("wanted %s about %s, found:\n%s", c.want, c.who, Report(found))
			}
		})
	}
}

func TestValuesAreReadBack(t *testing.T) {
	ref, seq, key, ok := ParseValue(Value("w1.7", 42, "k/1", 100))
	if !ok || ref != "w1.7" || seq != 42 || key != "k/1" {
		t.Fatalf("%q %d %q %v", ref, seq, key, ok)
	}
	whole := Value("w1.7", 42, "k", 100)
	for _, bad := range [][]byte{nil, []byte("x"), whole[:len(whole)-1], append(slices.Clone(whole), 'x'), append(slices.Clone(whole[:len(whole)-1]), 'y')} {
		if _, _, _, ok := ParseValue(bad); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestAReportIsShort(t *testing.T) {
	h := good()
	for i := range 100 {
		ref := fmt.Sprintf("z%d", i)
		h.Inserts = append(h.Inserts, Insert{Ref: ref, Outcome: Committed})
		h.States = append(h.States, State{ref, Pending})
	}
	text := Report(Check(h, Rules{}))
	if strings.Count(text, "\n") > 20 || !strings.Contains(text, "I1 is violated 100 times") {
		t.Fatal(text)
	}
}

// A story has what is known of the row, with when it was.
func TestAStoryTellsWhen(t *testing.T) {
	h := good()
	var log Log
	began := time.Now()
	log.Add(h.Inserts...)
	h.Inserts = log.Inserts()
	for i := range h.Inserts {
		if at := h.Inserts[i].At; at.Before(began) || at.After(time.Now()) {
			t.Fatalf("an insert was recorded at %v", at)
		}
		h.Inserts[i].At = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	h.record("a2").At = time.Date(2026, 1, 2, 3, 4, 6, 7e6, time.UTC)
	h.states("a2", Pending)
	want := `insert a2, public.outbox, key "a", place 2, committed, at 03:04:05.000; record t/1@2, key "a", at 03:04:06.007; the table says PENDING`
	if found := Check(h, Rules{}); len(found) == 0 || strings.Join(found[0].Story, "; ") != want {
		t.Fatalf("%+v, want %s", found, want)
	}
}
