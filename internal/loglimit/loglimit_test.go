package loglimit

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

type bench struct {
	limit *Limit
	log   zerolog.Logger
	out   *bytes.Buffer
	now   time.Time
}

func newBench() *bench {
	b := &bench{limit: New(2, time.Minute), out: &bytes.Buffer{}, now: time.Unix(0, 0)}
	b.limit.now = func() time.Time { return b.now }
	b.log = zerolog.New(b.out).Hook(b.limit)
	return b
}

func (b *bench) want(t *testing.T, lines ...string) {
	t.Helper()
	if got, want := b.out.String(), strings.Join(append(lines, ""), "\n"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	b.out.Reset()
}

const refused = `{"level":"warn","message":"refused"}`

func TestRepeatsAreCounted(t *testing.T) {
	b := newBench()
	for range 5 {
		b.log.Warn().Msg("refused")
	}
	b.want(t, refused, refused)
	b.now = b.now.Add(time.Minute)
	for range 3 {
		b.log.Warn().Msg("refused")
	}
	b.want(t, `{"level":"warn","repeated":3,"message":"refused"}`, refused)
}

// The first line of a message, a level, and about a thing is always written.
func TestTheFirstIsNeverHidden(t *testing.T) {
	b := newBench()
	for range 5 {
		b.log.Warn().Ctx(About("a")).Msg("refused")
		b.log.Info().Msg("fine")
	}
	b.out.Reset()
	b.log.Warn().Ctx(About("b")).Msg("refused")
	b.log.Error().Ctx(About("a")).Msg("refused")
	b.log.Warn().Ctx(About("a")).Msg("given back")
	b.log.Info().Msg("fine")
	b.want(t, refused, `{"level":"error","message":"refused"}`, `{"level":"warn","message":"given back"}`, `{"level":"info","message":"fine"}`)
}

// A count is told though no further line comes, also at the end.
func TestReport(t *testing.T) {
	b := newBench()
	for range 5 {
		b.log.Warn().Ctx(About("orders")).Msg("refused")
	}
	b.out.Reset()
	b.limit.tell(b.log, false)
	b.want(t)
	b.now = b.now.Add(time.Minute)
	b.limit.tell(b.log, false)
	b.want(t, `{"level":"warn","repeated":3,"about":"orders","message":"refused"}`)
	for range 5 { // the line that told counts, too
		b.log.Warn().Ctx(About("orders")).Msg("refused")
	}
	b.out.Reset()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := b.limit.Report(ended, b.log); err != nil {
		t.Fatal(err)
	}
	b.want(t, `{"level":"warn","repeated":4,"about":"orders","message":"refused"}`)
}

// A stream's lines with one cause are one line, whatever they say.
func TestACauseIsToldOnce(t *testing.T) {
	b := newBench()
	for _, message := range []string{"could not mark rows", "could not write a heartbeat", "could not sweep"} {
		b.log.Warn().Ctx(Because("orders", "the server is read-only")).Msg(message)
	}
	b.log.Error().Ctx(Because("orders", "the server is read-only")).Msg("could not mark rows")
	b.log.Warn().Ctx(Because("orders", "")).Msg("could not write a heartbeat")
	b.log.Warn().Ctx(Because("orders", "")).Msg("could not sweep")
	b.log.Warn().Ctx(Because("bills", "the server is read-only")).Msg("could not mark rows") // another stream, maybe of another server
	b.want(t, `{"level":"warn","message":"could not mark rows"}`, `{"level":"error","message":"could not mark rows"}`, `{"level":"warn","message":"could not write a heartbeat"}`,
		`{"level":"warn","message":"could not sweep"}`, `{"level":"warn","message":"could not mark rows"}`)
	b.limit.tell(b.log, true)
	b.want(t, `{"level":"warn","repeated":2,"about":"stream orders: the server is read-only","message":"could not sweep"}`)
	b.now = b.now.Add(time.Minute)
	b.log.Warn().Ctx(Because("orders", "the server is read-only")).Msg("could not mark rows")
	b.want(t, `{"level":"warn","message":"could not mark rows"}`)
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	b := newBench()
	for i := range 3 * maxLines {
		b.log.Warn().Ctx(About(strings.Repeat("x", i))).Msg("refused")
	}
	// Beyond the bound they count as the one about nothing, of which two are written.
	if got := strings.Count(b.out.String(), "\n"); got != maxLines+1 || len(b.limit.lines) != maxLines {
		t.Errorf("%d lines, %d remembered", got, len(b.limit.lines))
	}
}
