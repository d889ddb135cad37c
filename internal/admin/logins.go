package admin

import (
	"net/netip"
	"sync"
	"time"
)

// logins slows down the guessing of credentials. An address has a few tries for each user, and gets one back
// every few seconds. Further tries are refused at once without being checked, so they cost nothing.
type logins struct {
	now func() time.Time

	mu    sync.Mutex
	tries map[login]*tries // at most maxLogins entries
}

// login is an address and the user that it claims to be.
type login struct {
	from netip.Prefix
	user int
}

// Bounds of guessing. They allow some 9,000 tries a day per address and user.
const (
	mostTries = 10
	tryEvery  = 10 * time.Second
	maxLogins = 16384
	// lookedAt is how many entries are considered when one has to be dropped for a new address.
	lookedAt = 64
)

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, tries: map[login]*tries{}}
}

// begin takes a try. false: there is none left.
func (l *logins) begin(remote string, user int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.of(remote, user)
	if back := int(l.now().Sub(t.at) / tryEvery); back > 0 {
		t.left, t.at = min(t.left+back, mostTries), t.at.Add(time.Duration(back)*tryEvery)
	}
	if t.left == 0 {
		return false
	}
	t.left--
	return true
}

// succeeded gives back the try that begin took.
func (l *logins) succeeded(remote string, user int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.of(remote, user)
	t.left = min(t.left+1, mostTries)
}

func (l *logins) of(remote string, user int) *tries {
	which, now := login{origin(remote), user}, l.now()
	if t := l.tries[which]; t != nil {
		return t
	}
	if len(l.tries) >= maxLogins {
		l.forgetOne()
	}
	t := &tries{left: mostTries, at: now}
	l.tries[which] = t
	return t
}

// forgetOne makes room for a new address, which must not be refused because other addresses guess. It
// considers some entries and drops the one with the most tries left; among equals, the oldest.
func (l *logins) forgetOne() {
	var chosen login
	var best *tries
	n := 0
	for which, t := range l.tries { // in random order
		if best == nil || t.left > best.left || t.left == best.left && t.at.Before(best.at) {
			chosen, best = which, t
		}
		if n++; n == lookedAt {
			break
		}
	}
	delete(l.tries, chosen)
}

// tries is the number of tries left, and since when.
type tries struct {
	left int
	at   time.Time
}

// origin returns the range of addresses that one client can choose from: for IPv6 a whole /64.
func origin(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}
