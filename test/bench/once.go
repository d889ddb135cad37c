package bench

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// onceBar is of streams that deliver exactly once.
var onceBar = bar{name: "B13", round: (*bench).exactlyOnce, lines: []line{
	{"exactly once: stream waiting rows with SENT written back; reference: at least once, right before it", "rows/s", "ratio ≥ 0.7", ratioAtLeast(0.7)},
	{"peak memory of that", "MiB", "≤ 64 MiB", atMost(64)},
	{"the same with published: none; reference: at least once, right before it", "rows/s", "ratio ≥ 0.5", ratioAtLeast(0.5)},
	{"peak memory of that", "MiB", "≤ 64 MiB", atMost(64)},
	{"commit to readable (read_committed) at 200 rows/s, p50; reference: the broker's own", "ms", "≤ 10 ms above", aboveReference(10)},
	{"the same, p99", "ms", "≤ 40 ms above", aboveReference(40)},
	{"leader killed until the next row is readable (read_committed)", "s", "≤ 5 s", atMost(5)},
}}

// exactlyOnce is B13.
func (b *bench) exactlyOnce(t *testing.T, rows int) []sample {
	if b.fake {
		b.cannot(t, "kfake has no journal that is read to an abort marker")
	}
	sent, sentMemory := b.againstLeastOnce(t, standard(im2be(), rows))
	none, noneMemory := b.againstLeastOnce(t, standard(unmarked(), rows))
	p50, p99 := b.onceLatency(t)
	return []sample{sent, sentMemory, none, noneMemory, p50, p99, b.leaderKilled(t, true)}
}

// againstLeastOnce is a whole run of a job exactly once, held against one at least once right before it, and its
// memory.
func (b *bench) againstLeastOnce(t *testing.T, j job) (rate, memory sample) {
	least := b.streamed(t, j)
	j.once = true
	once := b.streamed(t, j)
	if memory = once; once.peak != nil {
		memory.value = *once.peak
	}
	return once.over(least.value), memory
}

// once has the stream deliver exactly once.
func (w *world) once(cluster, stream fields) {
	if !w.job.once {
		return
	}
	journal := w.topic + "-journal"
	cluster["transactional_id_prefix"], cluster["fencing"] = "bench-"+w.topic, "required" // two processes are one stream
	stream["delivery"], stream["journal"] = "exactly_once", fields{"topic": journal}
}

// journal makes the stream's journal.
func (w *world) journal() {
	if w.job.once {
		w.kafka.CreateTopic(w.t, w.topic+"-journal", 1, map[string]string{"retention.ms": "-1", "retention.bytes": "-1", "unclean.leader.election.enable": "false"})
	}
}

// onceLatency is how long rows take to be readable when they come one by one, for 10 s.
func (b *bench) onceLatency(t *testing.T) (p50, p99 sample) {
	const perSecond, lasting = 200, 10
	alone := b.probe(t)
	ctx, cancel := context.WithTimeout(t.Context(), lasting*time.Second)
	defer cancel()
	alone.produce(ctx, perSecond)
	broker := alone.milliseconds(settling)
	j := standard(im2be(), perSecond*lasting)
	j.once = true
	w := b.newWorld(t, j)
	w.prime()
	cpu := b.cpu(0)
	p := w.run()
	p.ready()
	tr := newTrace()
	follow(t, w.kafka, w.topic, tr, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	began := time.Now()
	w.writeSlowly(w.dbs[0].Conn(t), tr, perSecond)
	await(t, time.Minute, 10*time.Millisecond, tr.complete)
	s := sample{cpu: b.cpu(p.PID()).since(cpu)}
	w.delivered(p, time.Minute)
	p.Stop(30 * time.Second)
	w.judge()
	took := tr.milliseconds(began.Add(settling))
	p50, p99 = s, s
	p50.value, p99.value = percentile(took, 0.5), percentile(took, 0.99)
	return p50.over(percentile(broker, 0.5)), p99.over(percentile(broker, 0.99))
}
