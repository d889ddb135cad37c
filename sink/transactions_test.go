package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// onceDB stands for the database: its rows, which of them are marked, and the tally.
type onceDB struct {
	mu    sync.Mutex
	rows  []*outbox.Row
	sent  map[string]bool // by id
	tally exactlyonce.Tally
}

func newOnceDB() *onceDB {
	return &onceDB{sent: map[string]bool{}, tally: exactlyonce.Tally{Marked: map[uint64]int64{}}}
}

// mark notes a unit once, with its rows.
func (db *onceDB) mark(number uint64, offset int64, ids []string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	u := exactlyonce.Placed{Unit: exactlyonce.Unit{Number: number}, Offset: offset}
	if len(db.tally.Missing([]exactlyonce.Placed{u})) == 0 {
		return
	}
	for _, id := range ids {
		db.sent[id] = true
	}
	db.tally.Marked[number] = offset
	for { // the head moves on to the first gap
		next := db.tally.Head.Number + 1
		offset, noted := db.tally.Marked[next]
		if !noted {
			return
		}
		db.tally.Head = exactlyonce.Placed{Unit: exactlyonce.Unit{Number: next}, Offset: offset}
	}
}

func (db *onceDB) outcome(o outbox.Outcome) {
	if o.Unit == nil {
		return
	}
	ids := make([]string, len(o.Rows))
	for i, r := range o.Rows {
		ids[i] = r.ID
	}
	db.mark(o.Unit.Number, o.Unit.Place, ids)
}

func (db *onceDB) recover(_ context.Context, journal string, found *exactlyonce.Recovery) error {
	db.mu.Lock()
	db.tally.Journal = journal
	db.mu.Unlock()
	for _, u := range found.Units {
		ids := make([]string, len(u.Names))
		for i, n := range u.Names {
			ids[i] = n.ID
		}
		db.mark(u.Number, u.Offset, ids)
	}
	return nil
}

func (db *onceDB) insert(rows ...*outbox.Row) []*outbox.Row {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.rows = append(db.rows, rows...)
	return rows
}

// pending returns the rows that are not marked, behind some.
func (db *onceDB) pending(behind int) (rows []*outbox.Row, end int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, r := range db.rows[behind:] {
		if !db.sent[r.ID] {
			rows = append(rows, r)
		}
	}
	return rows, len(db.rows)
}

func (db *onceDB) marked() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.sent)
}

// config returns the configuration of a Sink that publishes exactly once.
func (db *onceDB) config(brokers []string, name string) Config {
	db.mu.Lock()
	defer db.mu.Unlock()
	tally := db.tally
	tally.Marked = nil // a Sink has no use for them
	return Config{Brokers: brokers, TransactionalID: name, Transactions: &Transactions{
		Journal: name + "-journal", Tally: tally, Recover: db.recover, MaxRows: 500, Timeout: 30 * time.Second,
	}}
}

// onceTopic makes a topic and its journal.
func onceTopic(t testing.TB, k *harness.Cluster, partitions int32) string {
	t.Helper()
	name := fmt.Sprint("once-", time.Now().UnixNano())
	k.CreateTopic(t, name, partitions, nil)
	k.CreateTopic(t, name+"-journal", 1, map[string]string{"retention.ms": "-1"})
	return name
}

// superseded waits for a rig's end by a newer one.
func (r *rig) superseded() {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.finished = true
		if !errors.Is(err, exactlyonce.ErrSuperseded) {
			r.t.Error(err)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatal("it goes on")
	}
}

// readCommitted returns all records that a read_committed consumer gets. It reads up to this number of
// endRows, since records behind a marker that was just written arrive late.
func readCommitted(t testing.TB, k *harness.Cluster, topic string, ends int) (records []*kgo.Record) {
	t.Helper()
	client, err := k.Client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for ends > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d partitions of %s are not read to their ends: is a transaction open?", ends, topic)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Key) == "end" {
				ends--
				return
			}
			records = append(records, r)
		})
	}
	return records
}

// endRows returns the last rows of a topic, one for each partition.
func endRows(topic string, partitions int32) (rows []*outbox.Row) {
	for p := range partitions {
		r := newRow(topic, "end", "end")
		r.Partition, r.Table = p, &outbox.Table{Schema: "public", Name: fmt.Sprint("end", p)}
		rows = append(rows, r)
	}
	return rows
}

// eachOnce fails unless each row is there once, those of a key in order.
func eachOnce(t testing.TB, records []*kgo.Record, rows []*outbox.Row) {
	t.Helper()
	keysInOrder(t, records, 12)
	count := map[string]int{}
	for _, r := range records {
		count[string(r.Value)]++
	}
	for _, r := range rows {
		if n := count[string(r.Value)]; n != 1 {
			t.Errorf("row %s is there %d times", r.Value, n)
		}
	}
	if len(records) != len(rows) {
		t.Errorf("%d records of %d rows", len(records), len(rows))
	}
}

// numbered returns n rows of 12 keys. Their values are numbers from this one on.
func numbered(topic string, from, n int) (rows []*outbox.Row) {
	for i := from; i < from+n; i++ {
		rows = append(rows, newRow(topic, fmt.Sprint("k", i%12), fmt.Sprint(i)))
	}
	return rows
}

// TestRealTransactions: what a transaction's rows need of real brokers.
func TestRealTransactions(t *testing.T) {
	k := privateKafka(t, harness.KafkaOptions{Proxied: true})
	t.Run("taken over", func(t *testing.T) { takenOver(t, k) })
	t.Run("refused rows", func(t *testing.T) { refusedInTransactions(t, k) })
	t.Run("partitions added", func(t *testing.T) { partitionsAddedInTransactions(t, k) })
	t.Run("made again", func(t *testing.T) { targetMadeAgain(t, k) })
	t.Run("records deleted", func(t *testing.T) { recordsDeleted(t, k) })
	t.Run("the journal", func(t *testing.T) { journalTrouble(t, k) })
	t.Run("under faults", func(t *testing.T) { transactionsUnderFaults(t, k) })
}

// takenOver: the second Sink of a transactional id hears what the first one published and
// nobody marked, and the first one publishes nothing any more.
func takenOver(t *testing.T, k *harness.Cluster) {
	topic, db := onceTopic(t, k, 3), newOnceDB()
	rows := numbered(topic, 0, 3000)
	first := newRig(t, db.config(k.Addrs, topic))
	first.publish(rows[:2000]...)
	first.expect(outbox.Delivered, 30*time.Second, rows[:2000]...)
	if first.sink.Fencing() != FencingOn {
		t.Error("it says that it does not fence")
	}
	for i, o := range first.order {
		if o.Unit == nil || o.Unit.Rows != len(o.Rows) || o.Unit.Cluster != "main" || o.Unit.Number != uint64(i+1) {
			t.Fatalf("outcome %d: unit %+v of %d rows", i, o.Unit, len(o.Rows))
		}
		if i%2 == 0 { // the other marks are lost
			db.outcome(o)
		}
	}
	second := newRig(t, db.config(k.Addrs, topic))
	second.usable(30*time.Second, true)
	if db.marked() != 2000 {
		t.Errorf("%d rows are marked", db.marked())
	}
	first.publish(newRow(topic, "late", "late"))
	first.superseded()
	last := append(rows[2000:], endRows(topic, 3)...)
	second.publish(last...)
	second.expect(outbox.Delivered, 30*time.Second, last...)
	eachOnce(t, readCommitted(t, k, topic, 3), rows)
}

// refusedInTransactions: a record that Kafka refuses is refused, its key's later rows are
// given back, and all others are delivered; nobody hears of them before the earlier ones.
func refusedInTransactions(t *testing.T, k *harness.Cluster) {
	topic, db := onceTopic(t, k, 1), newOnceDB()
	k.ConfigureTopic(t, topic, map[string]string{"max.message.bytes": "20000"})
	r := newRig(t, db.config(k.Addrs, topic))
	at := func(row *outbox.Row) int {
		return slices.IndexFunc(r.order, func(o outbox.Outcome) bool { return slices.Contains(o.Rows, row) })
	}
	good := numbered(topic, 0, 300)
	before, bad, later := newRow(topic, "bad", "1000"), newRow(topic, "bad", noise(40_000)), newRow(topic, "bad", "1012")
	tooLong := newRow(topic, "long", "id")
	tooLong.ID = strings.Repeat("x", longestID+1)
	own := newRow(topic+"-journal", "k", "v")
	inLog := newRow(topic, "long", "1024") // not named by its id
	inLog.Table, inLog.ID, inLog.Commit = &outbox.Table{Name: "events", Mapping: outbox.Mapping{Published: outbox.PublishedNone}}, tooLong.ID, 77
	good = append(good, inLog)
	r.publish(slices.Concat(good[:100], []*outbox.Row{before, bad, later, tooLong, own}, good[100:])...)
	r.expect(outbox.Delivered, 30*time.Second, append(good, before)...)
	if u := r.order[at(inLog)].Unit; u.UpTo != 77 || r.order[at(before)].Unit.UpTo != 0 {
		t.Errorf("%+v", u)
	}
	r.expect(outbox.Refused, time.Second, bad, tooLong)
	r.expect(outbox.Withdrawn, time.Second, later, own)
	if !(at(before) < at(bad) && at(bad) < at(later)) {
		t.Errorf("outcomes %d, %d, %d", at(before), at(bad), at(later))
	}
	if !errors.Is(r.fate[own].Err, errIsJournal) || !errors.Is(r.fate[tooLong].Err, errLongID) {
		t.Error(r.fate[own].Err, r.fate[tooLong].Err)
	}
	scope := outbox.KeyScope(bad)
	r.sink.Do(outbox.Command{Release: &scope})
	end := append(endRows(topic, 1), newRow(topic, "bad", "1012"))
	slices.Reverse(end)
	r.expect(outbox.Delivered, 30*time.Second, r.publish(end...)...)
	eachOnce(t, readCommitted(t, k, topic, 1), append(good, before, end[0]))
	if n := r.tally.committed.Load(); n != int64(len(good)+1+len(end)) {
		t.Errorf("the Observer heard of %d rows of committed transactions", n)
	}
}

// partitionsAddedInTransactions: rows of a key stay in order when it moves to another partition.
func partitionsAddedInTransactions(t *testing.T, k *harness.Cluster) {
	topic, db := onceTopic(t, k, 2), newOnceDB()
	cfg := db.config(k.Addrs, topic)
	cfg.MetadataRefresh, cfg.Transactions.MaxRows = 50*time.Millisecond, 20
	r := newRig(t, cfg)
	rows := numbered(topic, 0, 1200)
	r.publish(rows[:600]...)
	k.AddPartitions(t, topic, 5)
	r.until("partitions known", 30*time.Second, func() bool { return len(r.fate) == 600 })
	harness.Eventually(t, 30*time.Second, func() error {
		row := newRow(topic, "probe", fmt.Sprint(len(rows)))
		row.Partition = 4
		r.expect(outbox.Delivered, 30*time.Second, r.publish(row)...)
		return nil
	})
	r.expect(outbox.Delivered, 30*time.Second, r.publish(append(rows[600:], endRows(topic, 5)...)...)...)
	last := map[string]int{}
	for _, o := range r.order { // of one key, in order of publishing
		for _, row := range o.Rows {
			n := 0
			if _, err := fmt.Sscan(string(row.Value), &n); err != nil || string(row.Key) == "probe" {
				continue
			}
			if before, ok := last[string(row.Key)]; ok && n != before+12 {
				t.Fatalf("key %s: %d after %d", row.Key, n, before)
			}
			last[string(row.Key)] = n
		}
	}
}

// journalTrouble: without its journal, or with another one, nothing is published.
func journalTrouble(t *testing.T, k *harness.Cluster) {
	name, db := fmt.Sprint("journal-", time.Now().UnixNano()), newOnceDB()
	k.CreateTopic(t, name, 1, nil)
	r := newRig(t, db.config(k.Addrs, name))
	row := newRow(name, "k", "v")
	r.publish(row)
	if said := r.usable(30*time.Second, false); !strings.Contains(said.Err.Error(), name+"-journal") {
		t.Error(said.Err)
	}
	k.CreateTopic(t, name+"-journal", 1, nil)
	r.expect(outbox.Delivered, 30*time.Second, row)
	for _, o := range r.order {
		db.outcome(o)
	}
	// It is deleted under a leader, and created again.
	k.DeleteTopic(t, name+"-journal")
	r.publish(newRow(name, "k", "later"))
	if said := r.usable(30*time.Second, false); !strings.Contains(said.Err.Error(), name+"-journal") {
		t.Error(said.Err)
	}
	k.CreateTopic(t, name+"-journal", 1, nil)
	if err := <-r.done; !errors.Is(err, exactlyonce.ErrJournal) {
		t.Error(err)
	}
	r.finished = true
	second := newRig(t, db.config(k.Addrs, name))
	if err := <-second.done; !errors.Is(err, exactlyonce.ErrJournal) {
		t.Error(err)
	}
	second.finished = true
	// A tally of a journal that goes on behind this one's end.
	ahead := db.config(k.Addrs, name)
	ahead.Transactions.Tally.Journal, ahead.OutageAfter = "", 100*time.Millisecond
	third := newRig(t, ahead)
	if err := <-third.done; !errors.Is(err, exactlyonce.ErrJournal) {
		t.Error(err)
	}
	third.finished = true
}

// transactionsUnderFaults: requests and answers get lost, processes are killed or go on as
// zombies, marks are lost. A read_committed consumer sees each row once, those of a key in order.
func transactionsUnderFaults(t *testing.T, k *harness.Cluster) {
	topic, db := onceTopic(t, k, 3), newOnceDB()
	rng := rand.New(rand.NewPCG(1, 2))
	const rounds, each = 6, 400
	rows := numbered(topic, 0, rounds*each)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for round := range rounds {
		db.insert(rows[round*each : (round+1)*each]...)
		life, kill := context.WithCancel(ctx)
		all.Go(func() { db.process(life, t, k.Addrs, topic) })
		want := db.marked() + rng.IntN(each)
		hurt(t, k.Proxies[0], rng, func() bool { return db.marked() >= want })
		if round%2 == 0 {
			kill() // the others live on as zombies
		}
		defer kill()
		t.Logf("round %d: %d of %d rows are marked, head %d", round, db.marked(), (round+1)*each, db.tally.Head.Number)
	}
	db.insert(endRows(topic, 3)...)
	all.Go(func() {
		for ctx.Err() == nil && !t.Failed() { // a zombie may come late and end its leadership
			db.process(ctx, t, k.Addrs, topic)
		}
	})
	harness.Eventually(t, time.Minute, func() error {
		if n := db.marked(); n < len(rows)+3 {
			return fmt.Errorf("%d of %d rows are marked", n, len(rows)+3)
		}
		return nil
	})
	eachOnce(t, readCommitted(t, k, topic, 3), rows)
}

// hurt lets requests and answers get lost until enough was done, or there was enough of it.
func hurt(t *testing.T, p *harness.Proxy, rng *rand.Rand, enough func() bool) {
	t.Helper()
	for i := 0; i < 8 && !enough(); i++ {
		time.Sleep(time.Duration(100+rng.IntN(300)) * time.Millisecond) // a fault at some moment, not a wait
		switch rng.IntN(4) {
		case 0:
			p.Cut()
		case 1:
			p.Silence(harness.Replies)
			time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
			p.Speak()
		case 2:
			p.Silence(harness.Requests)
			time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
			p.Speak()
		case 3:
			p.Slow(harness.Requests, 30*time.Millisecond)
			time.Sleep(100 * time.Millisecond)
			p.Cut()
			p.Speak()
		}
	}
}

// process leads until its life ends or another one leads.
func (db *onceDB) process(life context.Context, t *testing.T, brokers []string, name string) {
	outcomes, states := mailbox.New[outbox.Outcome](), mailbox.New[outbox.ClusterState]()
	cfg := db.config(brokers, name)
	cfg.Cluster, cfg.Transactions.MaxRows = "main", 20
	began := make(chan struct{})
	cfg.Transactions.Recover = func(ctx context.Context, journal string, found *exactlyonce.Recovery) error {
		if !found.More {
			defer close(began)
		}
		return db.recover(ctx, journal, found)
	}
	s, err := New(cfg, outcomes, states)
	if err != nil {
		t.Error(err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(life) }()
	behind, look := 0, time.NewTicker(5*time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) && !errors.Is(err, exactlyonce.ErrSuperseded) {
				t.Error(err)
			}
			return
		case <-outcomes.Ready():
			for _, o := range outcomes.Take(nil) {
				if o.Class != outbox.Delivered {
					t.Errorf("row %s: class %d, %v", o.Rows[0].ID, o.Class, o.Err)
				}
				db.outcome(o)
			}
		case <-look.C:
			select {
			case <-began:
				var rows []*outbox.Row
				rows, behind = db.pending(behind)
				if len(rows) > 0 {
					s.Do(outbox.Command{Publish: rows})
				}
			default:
			}
		}
	}
}
