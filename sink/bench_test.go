package sink

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"

	"github.com/twmb/franz-go/pkg/kfake"
)

// BenchmarkSink publishes rows of 256 bytes, in commands of 500, with at most 20,000 in flight, as the
// pipeline does. One operation is one row.
func BenchmarkSink(b *testing.B) {
	clusters := []struct {
		name  string
		start func() *harness.Cluster
	}{
		{"kfake", func() *harness.Cluster { return harness.Kfake(b, kfake.NumBrokers(1)) }},
		{"kafka", func() *harness.Cluster { return harness.Kafka(b) }},
	}
	for _, c := range clusters {
		for _, keys := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("%s/keys=%d", c.name, keys), func(b *testing.B) { benchmark(b, c.start(), keys) })
		}
	}
}

func benchmark(b *testing.B, k *harness.Cluster, keys int) {
	topic := fmt.Sprintf("bench-%d-%d", keys, time.Now().UnixNano())
	k.CreateTopic(b, topic, 6, nil)
	outcomes, states := mailbox.New[outbox.Outcome](), mailbox.New[outbox.ClusterState]()
	var produced tally
	s, err := New(Config{Cluster: "main", Brokers: k.Addrs, TransactionalID: topic, Topics: []string{topic}, Observer: &produced}, outcomes, states)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-states.Ready()

	const inFlight, command = 20_000, 500
	rows := make([]outbox.Row, min(b.N, 200_000))
	payload := make([]byte, 256)
	for i := range rows {
		rows[i] = outbox.Row{Table: testTable, ID: fmt.Sprint(i), Cluster: "main", Topic: topic, Key: []byte(fmt.Sprint("key-", i%keys)), Value: payload, Partition: -1}
	}
	b.ReportAllocs()
	b.ResetTimer()
	sent, acked := 0, 0
	for acked < b.N {
		for sent < b.N && sent-acked <= inFlight-command {
			n := min(command, b.N-sent)
			cmd := make([]*outbox.Row, n)
			for i := range cmd {
				cmd[i] = &rows[(sent+i)%len(rows)]
			}
			s.Do(outbox.Command{Publish: cmd})
			sent += n
		}
		<-outcomes.Ready()
		for _, o := range outcomes.Take(nil) {
			if o.Class != outbox.Delivered {
				b.Fatal(o)
			}
			acked += len(o.Rows)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(produced.rows.Load())/float64(produced.batches.Load()), "rows/batch")
}

// BenchmarkOneRow measures the time from Do to the outcome of a single row, with nothing else under way.
func BenchmarkOneRow(b *testing.B) {
	for name, k := range map[string]*harness.Cluster{"kfake": harness.Kfake(b, kfake.SeedTopics(1, "t")), "kafka": harness.Kafka(b)} {
		b.Run(name, func(b *testing.B) {
			topic := fmt.Sprint("one-", time.Now().UnixNano())
			k.CreateTopic(b, topic, 1, nil)
			outcomes, states := mailbox.New[outbox.Outcome](), mailbox.New[outbox.ClusterState]()
			s, err := New(Config{Cluster: "main", Brokers: k.Addrs, TransactionalID: topic, Topics: []string{topic}}, outcomes, states)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			defer func() { cancel(); <-done }()
			<-states.Ready()
			row := newRow(topic, "k", string(make([]byte, 256)))
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				begin := time.Now()
				s.Do(outbox.Command{Publish: []*outbox.Row{row}})
				<-outcomes.Ready()
				outcomes.Take(nil)
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkTransactions publishes the same rows, in turn with and without transactions. At most 10,000 rows
// are in flight, which is the default of a stream's memory.rows. One operation is one row. Only ratios
// within one run are meaningful.
func BenchmarkTransactions(b *testing.B) {
	k := harness.Kafka(b)
	for range 2 {
		for _, most := range []int{0, 3333, 5000} {
			b.Run(fmt.Sprint("rows=", most), func(b *testing.B) { benchmarkTransactions(b, k, most) })
		}
	}
}

func benchmarkTransactions(b *testing.B, k *harness.Cluster, most int) {
	topic := fmt.Sprintf("bench-tx-%d-%d", most, time.Now().UnixNano())
	k.CreateTopic(b, topic, 6, nil)
	outcomes, states := mailbox.New[outbox.Outcome](), mailbox.New[outbox.ClusterState]()
	var produced tally
	cfg := Config{Cluster: "main", Brokers: k.Addrs, TransactionalID: topic, Topics: []string{topic}, Observer: &produced}
	if most > 0 {
		k.CreateTopic(b, topic+"-journal", 1, nil)
		cfg.Transactions = &Transactions{
			Journal: topic + "-journal", MaxRows: most, Timeout: time.Minute,
			Recover: func(context.Context, string, *exactlyonce.Recovery) error { return nil },
		}
	}
	s, err := New(cfg, outcomes, states)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-states.Ready()

	const inFlight, command = 10_000, 500
	rows := make([]outbox.Row, 20_000)
	payload := make([]byte, 256)
	for i := range rows {
		rows[i] = outbox.Row{Table: testTable, ID: fmt.Sprint(i), Cluster: "main", Topic: topic, Key: []byte(fmt.Sprint("key-", i)), Value: payload, Partition: -1}
	}
	sent, acked := 0, 0
	publish := func(to int) {
		for acked < to {
			for sent < to && sent-acked < inFlight {
				n := min(command, to-sent, inFlight-sent+acked)
				cmd := make([]*outbox.Row, n)
				for i := range cmd {
					cmd[i] = &rows[(sent+i)%len(rows)]
				}
				s.Do(outbox.Command{Publish: cmd})
				sent += n
			}
			<-outcomes.Ready()
			for _, o := range outcomes.Take(nil) {
				if o.Class != outbox.Delivered {
					b.Fatal(o)
				}
				acked += len(o.Rows)
			}
		}
	}
	publish(20_000) // to warm up
	batches, before := produced.batches.Load(), produced.rows.Load()
	b.ResetTimer()
	publish(20_000 + b.N)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(produced.rows.Load()-before)/float64(max(1, produced.batches.Load()-batches)), "rows/batch")
}
