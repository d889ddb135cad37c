package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// paused is what an operator has paused, as one question found it. Questions are numbered in the
// order in which they were asked: the answers to that of a new connection and to the regular one come
// to the driver in any order, and an older one must not end a pause that a later one found.
type paused struct {
	number uint64
	parks  []outbox.Park
}

// pauses asks what is paused.
type pauses struct {
	cfg   *Config
	store *store
	// asked counts the questions; asking is held during one.
	asking sync.Mutex
	asked  uint64
	// told is the last answer that was told the Core; the driver's.
	told paused
}

// pausesTimeout bounds one question.
const pausesTimeout = 5 * time.Second

// ask asks what is paused and whether this process still leads, and further questions with that; lost says why it
// does not lead. The number is 0 where there was no answer. One question follows the other: that of a new connection
// waits for the regular one, which may have been asked over a connection that became silent.
func (p *pauses) ask(ctx context.Context, further ...postgres.Question) (found paused, lost, err error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	p.asked++
	w, err := p.store.Watch(ctx, further...)
	if w.Told {
		found = paused{p.asked, w.Paused}
	}
	return found, w.Lost, err
}

// newer is what is paused by the last answer that was told.
func (p *pauses) newer(found paused) []outbox.Park {
	if found.number > p.told.number {
		p.told = found
	}
	return p.told.parks
}

// refusal is why nothing is swept by a command; nil: nothing of this configuration is paused.
func (p *pauses) refusal(parks []outbox.Park) error {
	for _, park := range parks {
		ours := func(t *outbox.Table) bool { return park.Scope == outbox.TableScope(t) }
		if park.Scope == outbox.StreamScope() || slices.ContainsFunc(p.cfg.Tables, ours) {
			return &postgres.Error{Permanent: true, What: "sweep", Err: fmt.Errorf("%s is %s", park.Scope, park.Reason), Hint: "outbox-cdc resume --stream " + p.cfg.Name}
		}
	}
	return nil
}
