package pipeline

import (
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// This file remembers, for people, what happened to a stream lately: events, errors (similar ones are counted
// together), and one hour of samples.

// Bounds of what is remembered, and how often samples are taken.
const (
	keptEvents  = 200
	keptErrors  = 50
	keptText    = 1000 // bytes of one error or event
	keptHistory = 360  // samples
	sampleEvery = 10 * time.Second
	ratesEvery  = 2 * time.Second
)

// recent is part of statusTracker and protected by its lock.
type recent struct {
	events  []status.Event // oldest first
	errors  []status.ErrorGroup
	history []status.Point
	parks   []outbox.Park // the slice is replaced as a whole, never changed

	before    counts // at the time of the last rates
	sampled   counts // at the last sample of history
	ages      *metrics.Latencies
	topics    map[string]*topicSamples // by topicKey
	rates     status.Rates
	positions *status.Positions
	insert    outbox.LSN
	insertAt  time.Time
}

// counts are the counters at one moment.
type counts struct {
	at              time.Time
	published, sent uint64 // rows, since the process began
}

// topicSamples is the history of one topic.
type topicSamples struct {
	published uint64 // as of the last sample
	ages      *metrics.Latencies
	history   []status.TopicPoint
}

func topicKey(t *status.Topic) string { return t.Cluster + " " + t.Topic }

func (b *statusTracker) recordEvent(kind, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent.recordEvent(time.Now(), kind, text)
}

func (b *statusTracker) recordError(about, text, example string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent.recordError(time.Now(), about, text, example)
}

func (r *recent) recordEvent(now time.Time, kind, text string) {
	r.events = keep(r.events, keptEvents, status.Event{At: now.UTC(), Kind: kind, Text: bounded(text)})
}

func (r *recent) recordError(now time.Time, about, text, example string) {
	text = bounded(text)
	for i := range r.errors {
		if g := &r.errors[i]; g.About == about && g.Text == text {
			g.Count++
			g.Last = now.UTC()
			return
		}
	}
	if len(r.errors) == keptErrors {
		oldest := 0
		for i := range r.errors {
			if r.errors[i].Last.Before(r.errors[oldest].Last) {
				oldest = i
			}
		}
		r.errors = slices.Delete(r.errors, oldest, oldest+1)
	}
	r.errors = append(r.errors, status.ErrorGroup{About: about, Text: text, Count: 1, First: now.UTC(), Last: now.UTC(), Example: example})
}

// sample reads the counters. It does so at intervals only.
func (r *recent) sample(now time.Time, slot *status.Slot, m *metrics.Stream) {
	rows := m.Rows()
	current := counts{now, rows.Published, rows.Sent}
	if r.before.at.IsZero() {
		r.before, r.sampled, r.ages = current, current, m.Ages()
		return
	}
	if passed := now.Sub(r.before.at); passed >= ratesEvery {
		r.rates.Published = float64(current.published-r.before.published) / passed.Seconds()
		r.rates.Sent = float64(current.sent-r.before.sent) / passed.Seconds()
		r.before = current
	}
	if passed := now.Sub(r.sampled.at); passed >= sampleEvery {
		p := status.Point{At: now.UTC(), PerSecond: float64(current.published-r.sampled.published) / passed.Seconds()}
		if slot != nil {
			p.Lag, p.Retained = slot.Lag, slot.Retained
		}
		ages := m.Ages()
		p.P50, p.P99 = ages.Since(r.ages, 0.5), ages.Since(r.ages, 0.99)
		r.history = keep(r.history, keptHistory, p)
		r.sampleTopics(m, passed)
		r.sampled, r.ages = current, ages
	}
}

// sampleTopics reads the counters of each topic. The number of topics is bounded.
func (r *recent) sampleTopics(m *metrics.Stream, passed time.Duration) {
	topics := m.Topics()
	if r.topics == nil {
		r.topics = map[string]*topicSamples{}
	}
	for i := range topics {
		key := topicKey(&topics[i])
		samples := r.topics[key]
		if samples == nil {
			samples = &topicSamples{ages: new(metrics.Latencies)}
			r.topics[key] = samples
		}
		ages := m.AgesOf(&topics[i])
		samples.history = keep(samples.history, keptHistory, status.TopicPoint{
			PerSecond: float32(float64(topics[i].Published-samples.published) / passed.Seconds()),
			P50:       float32(ages.Since(samples.ages, 0.5)), P99: float32(ages.Since(samples.ages, 0.99)),
		})
		samples.published, samples.ages = topics[i].Published, ages
	}
}

// keep appends an element, and drops the oldest one if there are more than most.
func keep[T any](all []T, most int, next T) []T {
	if len(all) == most {
		all = slices.Delete(all, 0, 1)
	}
	return append(all, next)
}

// bounded cuts a text that came from outside.
func bounded(text string) string {
	if len(text) > keptText {
		return strings.ToValidUTF8(text[:keptText], "") + "…"
	}
	return text
}
