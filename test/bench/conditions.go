package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A round counts only when the machine was quiet: nobody else used more than
// this of it, and it was about as fast as at its best in this run.
const (
	mostOthers = 0.1  // cores
	mostSlower = 1.25 // times the best calibration of the run
)

// Conditions are what the machine was like during a round.
type Conditions struct {
	Before Calibration `json:"before"`
	After  Calibration `json:"after"`
	// Steal is the CPU that the hypervisor kept, Others what processes used that
	// are not the bench's, in cores. They are null where there is no /proc.
	Steal  *float64 `json:"steal_cores"`
	Others *float64 `json:"others_cores"`
	// Noise says why the round does not count; empty: it was quiet.
	Noise string `json:"noise"`
}

// noise says what was not quiet; best is the fastest CPU loop of the run.
func (c Conditions) noise(best float64) string {
	var why []string
	if valueOf(c.Steal) > mostOthers {
		why = append(why, fmt.Sprintf("the hypervisor kept %.2f cores", *c.Steal))
	}
	if valueOf(c.Others) > mostOthers {
		why = append(why, fmt.Sprintf("others used %.2f cores", *c.Others))
	}
	if slowest := max(c.Before.CPU, c.After.CPU); slowest > mostSlower*best {
		why = append(why, fmt.Sprintf("the calibration loop took %.1f ms, %.1f at best", slowest, best))
	}
	return strings.Join(why, "; ")
}

// observed runs a round and gives the conditions that it had.
func (b *bench) observed(round func()) Conditions {
	if b.calibrated == nil {
		b.calibrate()
	}
	c := Conditions{Before: *b.calibrated}
	before, err := useOfCPU(b.processes())
	began := time.Now()
	round()
	after, failed := useOfCPU(b.processes())
	if err == nil && failed == nil {
		seconds := time.Since(began).Seconds()
		c.Steal, c.Others = new((after.steal-before.steal)/seconds), new(max(0, after.others-before.others)/seconds)
	}
	c.After = b.calibrate()
	c.Noise = c.noise(b.fastest)
	return c
}

// processes are the roots of all that belongs to the bench.
func (b *bench) processes() []int {
	roots := []int{os.Getpid()}
	if b.server != nil {
		roots = append(roots, b.server.PID())
	}
	if b.cluster != nil {
		for _, n := range b.cluster.Nodes {
			roots = append(roots, n.PID())
		}
	}
	return roots
}

// used is CPU so far, in seconds.
type used struct{ steal, others float64 }

// useOfCPU reads what the hypervisor kept, and what others used: all of the
// machine's CPU but for what belongs to the roots and to the kernel's threads.
// https://man7.org/linux/man-pages/man5/proc_stat.5.html
func useOfCPU(roots []int) (used, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return used{}, err
	}
	busy, steal, err := parseMachine(string(text))
	if err != nil {
		return used{}, err
	}
	return used{steal: steal, others: busy - ofTrees(allProcesses(), roots)}, nil
}

// parseMachine reads the first line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq, steal.
func parseMachine(text string) (busy, steal float64, err error) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, errors.New("/proc/stat is not as expected")
	}
	var n [9]float64
	for i := 1; i < 9; i++ {
		if n[i], err = strconv.ParseFloat(f[i], 64); err != nil {
			return 0, 0, err
		}
	}
	return (n[1] + n[2] + n[3]) / ticks, n[8] / ticks, nil
}

func allProcesses() map[int]stat {
	all := map[int]stat{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if s, err := statOf(pid); err == nil { // it may have ended
			all[pid] = s
		}
	}
	return all
}

// kthreadd is the parent of the kernel's threads, which work for everybody.
const kthreadd = 2

// ofTrees is the CPU of the roots and their descendants, those that have ended
// included, and of the kernel's threads.
func ofTrees(all map[int]stat, roots []int) (seconds float64) {
	for pid, s := range all {
		for at := pid; at > 1; at = all[at].parent {
			if at == kthreadd || slices.Contains(roots, at) {
				seconds += s.own + s.children
				break
			}
		}
	}
	return seconds
}

// Calibration is how fast the machine was by itself, for a moment.
type Calibration struct {
	CPU      float64 `json:"cpu_ms"`           // a loop on every core at once, the slowest core
	Memory   float64 `json:"memory_gib_per_s"` // copied
	Loopback float64 `json:"loopback_us"`      // a round trip over TCP
	Fsync    float64 `json:"fsync_ms"`         // of 8 KiB, the median
}

// calibrate takes half a second.
func (b *bench) calibrate() Calibration {
	c := Calibration{CPU: loopOnEveryCore(), Memory: memorySpeed(), Loopback: loopback(), Fsync: fsyncs(b.t.TempDir())}
	b.calibrated = &c
	if b.fastest == 0 || c.CPU < b.fastest {
		b.fastest = c.CPU
	}
	return c
}

// loopOnEveryCore is the best of a few tries, so that what is left of a round
// does not count as noise.
func loopOnEveryCore() float64 {
	best := time.Hour
	for range 5 {
		began := time.Now()
		var all sync.WaitGroup
		for range runtime.NumCPU() {
			all.Go(spin)
		}
		all.Wait()
		best = min(best, time.Since(began))
	}
	return float64(best.Microseconds()) / 1000
}

// sunk keeps the compiler from leaving the loop out.
var sunk struct {
	sync.Mutex
	x uint64
}

func spin() {
	x := uint64(88172645463325252)
	for range 10_000_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sunk.Lock()
	sunk.x += x
	sunk.Unlock()
}

func memorySpeed() float64 {
	const size = 64 << 20
	from, to := make([]byte, size), make([]byte, size)
	copy(to, from) // has its pages from now on
	best := time.Hour
	for range 3 {
		began := time.Now()
		copy(to, from)
		best = min(best, time.Since(began))
	}
	return float64(size) / (1 << 30) / best.Seconds()
}

// loopback is the median of some round trips of 256 bytes; 0: there is none.
func loopback() float64 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn) // until the other side closes
			_ = conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0
	}
	defer conn.Close()
	var took []float64
	message := make([]byte, 256)
	for range 1000 {
		began := time.Now()
		if _, err := conn.Write(message); err != nil {
			return 0
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			return 0
		}
		took = append(took, float64(time.Since(began).Nanoseconds())/1000)
	}
	return median(took)
}

// fsyncs is the median of some writes of 8 KiB that last; 0: it cannot be written.
func fsyncs(dir string) float64 {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0
	}
	defer f.Close()
	var took []float64
	for range 20 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 8192)); err != nil {
			return 0
		}
		if err := f.Sync(); err != nil {
			return 0
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	return median(took)
}
