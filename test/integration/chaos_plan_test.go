package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
)

// action is what a step of a schedule does.
type action string

// The actions. Those on a process have its number, the others 0.
const (
	killed         action = "kill -9"
	stopped        action = "SIGTERM"
	frozen         action = "SIGSTOP"
	thawed         action = "SIGCONT"
	armed          action = "begin anew with a failpoint"
	revived        action = "start whoever has ended"
	slotDropped    action = "drop the slot"
	sessionsEnded  action = "terminate all sessions"
	publicationCut action = "drop the publication"
	rowsLocked     action = "lock rows for a while"
	longOpen       action = "leave a transaction open for a while"
	brokerKilled   action = "kill the broker"
	brokerStopped  action = "stop the broker"
	brokerStarted  action = "start the broker"
	modeChanged    action = "stop all, and change the mode"
)

// step is one fault and how long until the next one.
type step struct {
	do      action
	process int
	point   string // of armed: NAME:N, NAME:N:DURATION or NAME:N:error
	pause   time.Duration
}

func (s step) String() string {
	switch s.do {
	case armed:
		return fmt.Sprintf("process %d: %s %s", s.process, s.do, s.point)
	case killed, stopped, frozen, thawed:
		return fmt.Sprintf("process %d: %s", s.process, s.do)
	default:
		return string(s.do)
	}
}

// planner draws a schedule. It knows what it has done, and nothing of what came
// of it, so that a seed always gives the same one.
type planner struct {
	r          *rand.Rand
	frozen     [2]bool
	brokerDown bool
}

func newPlanner(seed uint64) *planner { return &planner{r: rand.New(rand.NewPCG(seed, 0))} }

// next draws a step. An outage and a frozen process are ended sooner than not.
func (p *planner) next() step {
	s := step{process: p.r.IntN(2), pause: time.Duration(p.r.IntN(1500)) * time.Millisecond}
	if p.brokerDown && p.r.IntN(2) == 0 {
		p.brokerDown = false
		s.do, s.process = brokerStarted, 0
		return s
	}
	choices := []action{killed, stopped, frozen, armed, armed, revived, slotDropped, sessionsEnded, publicationCut, rowsLocked, longOpen, brokerKilled, brokerStopped, modeChanged}
	s.do = choices[p.r.IntN(len(choices))]
	switch s.do {
	case killed, stopped:
		p.frozen[s.process] = false
	case frozen:
		if p.frozen[s.process] {
			s.do = thawed
		}
		p.frozen[s.process] = s.do == frozen
	case armed:
		p.frozen[s.process] = false
		s.point = p.point()
	case brokerKilled, brokerStopped:
		if p.brokerDown {
			s.do = brokerStarted
		}
		p.brokerDown = s.do != brokerStarted
		s.process = 0
	case modeChanged:
		p.frozen, s.process = [2]bool{}, 0
	default:
		s.process = 0
	}
	return s
}

// point draws a failpoint: of five three kill, one holds up, one is an error.
func (p *planner) point() string {
	names := failpoint.Names()
	point := fmt.Sprintf("%s:%d", names[p.r.IntN(len(names))], 1+p.r.IntN(5))
	switch p.r.IntN(5) {
	case 0:
		point += fmt.Sprintf(":%dms", 200+p.r.IntN(5000))
	case 1:
		point += ":error"
	}
	return point
}

// A seed gives the same schedule each time, schedules have every action in them,
// and none does what cannot be done.
func TestSchedulesAreTheSeeds(t *testing.T) {
	draw := func(seed uint64) (steps []step) {
		for p := newPlanner(seed); len(steps) < 500; {
			steps = append(steps, p.next())
		}
		return steps
	}
	if !slices.Equal(draw(1), draw(1)) || slices.Equal(draw(1), draw(2)) {
		t.Error("the seed does not decide")
	}
	seen := map[action]bool{}
	down := false
	for _, s := range draw(3) {
		seen[s.do] = true
		if s.do == brokerStarted && !down || (s.do == brokerKilled || s.do == brokerStopped) && down {
			t.Errorf("%v, and the broker is down: %v", s, down)
		}
		down = s.do == brokerKilled || s.do == brokerStopped || down && s.do != brokerStarted
	}
	if len(seen) != 15 {
		t.Errorf("%d actions: %v", len(seen), seen)
	}
}
