package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestLinesForPipes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &display{o: Options{Out: &out}}
	began := time.Unix(100, 0)
	d.say("starting")
	d.start(began)
	d.draw(frame{at: began.Add(3 * time.Second), inserted: 3000, published: 2999, sent: 2990, pending: 10, p50: 1200 * time.Microsecond, p99: 45 * time.Millisecond, retained: 3 << 19})
	want := "starting\n   3s  inserted     3,000  published     2,999  SENT     2,990  pending      10  p50    1.2ms  p99     45ms  WAL   1.5MiB\n"
	if out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}

func TestPanelIsDrawnOver(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &display{o: Options{Out: &out, Live: true, Width: 80}}
	began := time.Unix(100, 0)
	d.start(began)
	for i := range 3 {
		d.draw(frame{at: began.Add(time.Duration(i+1) * time.Second), rows: 100, inserted: 40 * (i + 1), published: 40 * i, retained: -1})
	}
	if n := strings.Count(out.String(), "\x1b[7A\x1b[J"); n != 2 {
		t.Errorf("drawn over %d times, want 2:\n%q", n, out.String())
	}
	for _, l := range strings.Split(out.String(), "\n") {
		if n := len([]rune(strings.ReplaceAll(strings.ReplaceAll(l, "\x1b[7A", ""), "\x1b[J", ""))); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1234: "-1,234", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{-1: "no slot", 2048: "2KiB", 5 << 20: "5.0MiB", 3 << 30: "3.0GiB"} {
		if got := size64(n); got != want {
			t.Errorf("size64(%d) = %s, want %s", n, got, want)
		}
	}
}
