package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

const (
	// claimRows is the most rows of one claim: no more are locked than are soon marked.
	claimRows = 500
	// maxClaims is how many claims may have unmarked rows. Each has its own connection
	// (statusupdater.Config.Claims), which a trigger can hold for as long as a statement may
	// take, so each of several claiming tables has a share of them.
	maxClaims = 4
)

// claims are the locks of rows: those that are asked for, and those that are held.
type claims struct {
	// asking is the queue of the outstanding request, first the first of its rows: an answer
	// that begins with another row is not this request's. Both are nil if there is none.
	asking *lookQueue
	first  *outbox.Row
	// open counts the claims with rows that are not marked yet; lookQueue.claims those of one table.
	open     int // at most maxClaims
	perTable int // the most of them for one table
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

// free says that no request is outstanding, and that the stream and the table's share have a
// connection left.
func (s *claims) free(q *lookQueue) bool {
	return s.asking == nil && s.open < maxClaims && q.claims < s.perTable
}

func (s *claims) ask(q *lookQueue, rows []*outbox.Row) { s.asking, s.first = q, rows[0] }

// answered ends the outstanding request.
func (s *claims) answered() { s.asking, s.first = nil, nil }

// claim is rows locked in the database by one request, until each has been
// marked or given up.
type claim struct {
	queue *lookQueue
	rows  int
}

// lock notes that the row is one of the claim's.
func (s *claims) lock(e *entry, cl *claim) {
	if cl.rows == 0 {
		s.open++
		cl.queue.claims++
	}
	cl.rows++
	e.claim = cl
}

// release notes that the row's outcome is written, or that it is given up.
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
