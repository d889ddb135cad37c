// Package creep keeps the hot path from becoming more expensive little by
// little: what a row allocates is compared with a committed baseline. Allocations
// and bytes are the same on every machine; wall time is not, and decides nothing.
package creep

import (
	_ "embed" // the baseline
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
)

// Cost is what a row costs.
type Cost struct {
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"bytes"`
}

//go:embed baseline.json
var committed []byte

// Hold fails a test whose rows allocate more than the baseline has for its
// name: by more than a twentieth, and more than rounding. run handles so many rows.
// UPDATE_CREEP=1 writes the baseline.
func Hold(t testing.TB, name string, rows int, run func()) {
	t.Helper()
	var baseline map[string]Cost
	if err := json.Unmarshal(committed, &baseline); err != nil {
		t.Fatalf("baseline.json: %v", err)
	}
	got := measure(rows, run)
	if os.Getenv("UPDATE_CREEP") != "" {
		if err := update(name, got); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, known := baseline[name]
	if !known {
		t.Fatalf("%q has no baseline: UPDATE_CREEP=1 go test -run '^%s$'", name, t.Name())
	}
	if raceDetector {
		return // it allocates by itself
	}
	if why := more(was, got); why != "" {
		t.Errorf("%s: %s. If it has to be: UPDATE_CREEP=1 go test -run '^%s$'", name, why, t.Name())
	}
}

// more says what got more expensive.
func more(was, got Cost) string {
	switch {
	case got.Allocations > was.Allocations*1.05+0.005:
		return fmt.Sprintf("%.3f allocations per row, the baseline has %.3f", got.Allocations, was.Allocations)
	case got.Bytes > was.Bytes*1.05+1:
		return fmt.Sprintf("%.1f bytes are allocated per row, the baseline has %.1f", got.Bytes, was.Bytes)
	}
	return ""
}

// measure takes the cheapest of a few tries: what else the process does now and
// then is not the row's.
func measure(rows int, run func()) Cost {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	run() // makes room
	cheapest := Cost{math.Inf(1), math.Inf(1)}
	for range 5 {
		const runs = 4
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range runs {
			run()
		}
		runtime.ReadMemStats(&after)
		per := func(n uint64) float64 { return float64(n) / float64(runs*rows) }
		cheapest.Allocations = min(cheapest.Allocations, per(after.Mallocs-before.Mallocs))
		cheapest.Bytes = min(cheapest.Bytes, per(after.TotalAlloc-before.TotalAlloc))
	}
	return cheapest
}

var updating sync.Mutex

// update writes a cost into the baseline next to this file.
func update(name string, got Cost) error {
	updating.Lock()
	defer updating.Unlock()
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "baseline.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	all := map[string]Cost{}
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	round := func(v float64) float64 { return math.Round(v*1000) / 1000 }
	all[name] = Cost{round(got.Allocations), round(got.Bytes)}
	if text, err = json.MarshalIndent(all, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
