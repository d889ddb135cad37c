package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

const (
	// claimRows is the maximum number of rows of one claim. Rows should not be locked long before they are
	// marked.
	claimRows = 500
	// maxClaims is the maximum number of claims with unmarked rows. Each has a connection of its own
	// (statusupdater.Config.Claims), which a trigger can hold for as long as a statement may take. So where
	// several tables claim, each has a share of the connections.
	maxClaims = 4
)

// claims keeps account of row locks: the outstanding request, and the locks held.
type claims struct {
	// asking is the queue that the outstanding request is for. first is the request's first row: an answer
	// that begins with another row belongs to an earlier request. Both are nil if no request is
	// outstanding.
	asking *lookQueue
	first  *outbox.Row
	// open counts the claims with rows that are not marked yet. lookQueue.claims counts those of one table.
	open     int // at most maxClaims
	perTable int // maximum of open claims for one table
}

func newClaims(tables []*outbox.Table) claims {
	claiming := 0
	for _, t := range tables {
		if t.Mapping.Claim != outbox.ClaimNone {
			claiming++
		}
	}
	return claims{perTable: max(1, maxClaims/max(1, claiming))}
}

// free reports whether a claim may be asked for: no request is outstanding, and neither the stream nor the
// table has used up its connections.
func (s *claims) free(q *lookQueue) bool {
	return s.asking == nil && s.open < maxClaims && q.claims < s.perTable
}

func (s *claims) ask(q *lookQueue, rows []*outbox.Row) { s.asking, s.first = q, rows[0] }

// answered ends the outstanding request.
func (s *claims) answered() { s.asking, s.first = nil, nil }

// claim is a set of rows that one request has locked in the database. It ends when each of them is marked
// or given up.
type claim struct {
	queue *lookQueue
	rows  int
}

// lock adds the row to the claim.
func (s *claims) lock(e *entry, cl *claim) {
	if cl.rows == 0 {
		s.open++
		cl.queue.claims++
	}
	cl.rows++
	e.claim = cl
}

// release takes the row out of its claim: its outcome is written, or the row is given up.
func (s *claims) release(e *entry) {
	cl := e.claim
	if cl == nil {
		return
	}
	if cl.rows--; cl.rows == 0 {
		s.open--
		cl.queue.claims--
	}
	e.claim = nil
}
