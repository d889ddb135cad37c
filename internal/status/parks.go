package status

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Parks is what is left to the sweeper.
type Parks struct {
	// Total is how many parks there are.
	Total int `json:"total"`
	// Scopes are their numbers by scope: `stream`, `cluster`, `table`, `topics` (a table's unknown
	// ones), `topic`, `key`, `row`.
	Scopes map[string]int `json:"by_scope"`
	// Top is up to ten groups of parks that differ in names and numbers only: the widest scopes
	// first, then the commonest reasons.
	Top []ParkGroup `json:"top,omitempty"`
}

// ParkGroup is parks of one kind with one reason.
type ParkGroup struct {
	// Kind is the scope, as in `by_scope`.
	Kind string `json:"scope"`
	// Cause is the reason in one word, as in the metric `outbox_cdc_parks`.
	Cause string `json:"cause"`
	// Reason is why they are parked, in words.
	Reason string `json:"reason"`
	// Count is the number of parks.
	Count int `json:"count"`
	// Since is when the oldest of them began.
	Since time.Time `json:"since"`
	// Example is one of them, in words.
	Example string `json:"example"`
}

// Scopes returns what is parked, in words.
func (g *ParkGroup) Scopes() string {
	if g.Count > 1 {
		return kinds(g.Count, g.Kind) + ", such as " + g.Example
	}
	return g.Example
}

// Text returns what is parked and why. It does not name the stream twice.
func (g *ParkGroup) Text() string {
	if g.Kind == outbox.ScopeStream.String() {
		return g.Reason
	}
	return g.Scopes() + ": " + Why(g.Example, g.Reason)
}

// Why returns the reason of a park without the scope at its beginning.
func Why(scope, reason string) string { return strings.TrimPrefix(reason, scope+": ") }

// kinds counts scopes of a kind, in words.
func kinds(n int, kind string) string {
	if kind == outbox.ScopeTopics.String() {
		kind = "table with unknown topics" // a park of this kind is about a table
	}
	return number(n, kind)
}

const (
	maxGroups = 10
	// maxReasons is how many groups are told apart; all further ones form one group.
	maxReasons = 200
)

// group is parks of one kind and cause whose reasons differ only in names and numbers. People need not tell
// them apart.
type group struct {
	kind   outbox.ScopeKind
	cause  outbox.Cause
	reason string
}

// Summarize groups parks by kind, cause and reason: widest first, then most frequent first.
func Summarize(parks []outbox.Park) Parks {
	p := Parks{Total: len(parks), Scopes: map[string]int{}}
	at := map[group]int{}
	kindOf := map[string]outbox.ScopeKind{}
	for i := range parks {
		park := &parks[i]
		p.Scopes[park.Scope.Kind.String()]++
		g := group{park.Scope.Kind, park.Cause, alike(park)}
		n, known := at[g]
		if !known && len(at) >= maxReasons {
			g.reason = "for various reasons"
			n, known = at[g]
		}
		if !known {
			n = len(p.Top)
			at[g] = n
			kindOf[g.kind.String()] = g.kind
			p.Top = append(p.Top, ParkGroup{
				Kind: g.kind.String(), Cause: string(g.cause), Reason: park.Reason, Since: park.Since, Example: park.Scope.String(),
			})
		}
		top := &p.Top[n]
		if top.Count++; top.Reason != park.Reason {
			top.Reason = g.reason
		}
		if park.Since.Before(top.Since) {
			top.Since = park.Since
		}
	}
	slices.SortStableFunc(p.Top, func(a, b ParkGroup) int {
		return cmp.Or(cmp.Compare(min(kindOf[a.Kind], outbox.ScopeKey), min(kindOf[b.Kind], outbox.ScopeKey)), cmp.Compare(b.Count, a.Count))
	})
	p.Top = p.Top[:min(len(p.Top), maxGroups)]
	return p
}

// alike returns the reason without names and numbers that only this park has.
func alike(p *outbox.Park) string {
	reason := p.Reason
	for _, name := range []string{p.Scope.Topic, p.Scope.Key} {
		if len(name) > 1 {
			reason = strings.ReplaceAll(reason, name, "…")
		}
	}
	return digits.ReplaceAllString(reason, "…")
}

var digits = regexp.MustCompile(`[0-9]+`)

// StreamPark returns the park of the whole stream, or nil.
func StreamPark(parks []outbox.Park) *outbox.Park {
	for i := range parks {
		if parks[i].Scope.Kind == outbox.ScopeStream {
			return &parks[i]
		}
	}
	return nil
}
