package page

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// streamRow is one stream's way: WAL → stream → Kafka → SENT.
type streamRow struct {
	status.Stream
	Rates  status.Rates
	Bar    *bar
	Charts []*chart
	// Spans are the possible lengths of time for charts. Dashboard is where longer charts are, or empty.
	Spans     []spanChoice
	Dashboard string
	Needs     []attention
	Pending   string
	Failed    string
	// Counted is the age of the oldest count of pending rows. FailedCounted is the age of the count of failed
	// rows, and Read the age of the slot's data; both are set only if old.
	Counted, FailedCounted, Read string

	now   time.Time
	Gave  bool   // some rows have failed
	Waits string // how long something has been waiting, if at least a second
	// Once has the state of each tally of a stream with exactly-once delivery.
	Once []string
	// Troubled is the number of Kafka clusters in trouble.
	Troubled int
	Long     bool // this is the stream's own page
	Knows    bool // the stream's state is known
}

// oldCount is the age from which a count is called old: rows are counted every 15 s, where that is quick.
const oldCount = 30 * time.Second

// Age returns how long ago something was counted, if that is old; otherwise "".
func (l streamRow) Age(at time.Time) string {
	if age := l.now.Sub(at); !at.IsZero() && age > oldCount {
		return status.About(age)
	}
	return ""
}

// oldSlot is the age from which a slot's data is called old: it is read every few seconds, unless the
// database does not answer.
const oldSlot = 30 * time.Second

func (p *Page) rowOf(s *Stream, span time.Duration) (streamRow, status.Activity) {
	st, a := s.Report(), s.Activity()
	l := streamRow{
		Stream: st, Rates: a.Rates, Bar: barOf(st.Slot), Needs: needsOf(&st), Knows: !st.Unaware(),
		Charts: chartsOf(a.History, span, p.cfg.Now()), Dashboard: p.cfg.Dashboard,
	}
	if len(a.History) > 1 { // there may be charts
		l.Spans = choicesOf(span)
	}
	for _, c := range st.Kafka {
		if !c.Usable {
			l.Troubled++
		}
	}
	for i := range st.Tallies {
		l.Once = append(l.Once, "Tally of cluster "+st.Tallies[i].Cluster+": "+st.Tallies[i].Text(st.Led())+".")
	}
	var pending, failed total
	var oldest, oldestFailed time.Time
	for _, t := range st.Tables {
		pending.add(t.Pending, t.PendingCapped)
		failed.add(t.Failed, t.FailedCapped)
		if at := t.CountedAt; !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
		if at := t.FailedAt; !at.IsZero() && (oldestFailed.IsZero() || at.Before(oldestFailed)) {
			oldestFailed = at
		}
	}
	now := p.cfg.Now()
	l.now = now
	l.FailedCounted = l.Age(oldestFailed)
	if !oldest.IsZero() {
		l.Counted = status.About(max(0, now.Sub(oldest)))
	}
	if s := st.Slot; s != nil && now.Sub(s.At) > oldSlot && !s.At.IsZero() {
		l.Read = status.About(now.Sub(s.At))
	}
	l.Pending, l.Failed, l.Gave = pending.of("pending"), failed.of("failed"), failed.n > 0
	if s := st.Slot; s != nil && s.LagSeconds != nil && *s.LagSeconds >= 1 {
		l.Waits = status.About(time.Duration(*s.LagSeconds * float64(time.Second)))
	}
	return l, a
}

func (p *Page) streamRows(span time.Duration) []streamRow {
	var rows []streamRow
	for i := range p.cfg.Streams {
		row, _ := p.rowOf(&p.cfg.Streams[i], span)
		rows = append(rows, row)
	}
	return rows
}

// total adds up counts. Some may be unknown.
type total struct {
	n           int64
	known, more bool
}

func (t *total) add(n *int64, more bool) {
	if n != nil {
		t.n, t.known, t.more = t.n+*n, true, t.more || more
	}
}

func (t *total) of(what string) string {
	if !t.known {
		return what + " not counted"
	}
	return cappedText(&t.n, t.more) + " " + what
}

// Bounds of what is drawn.
const (
	shownTopics  = 6
	chartStreams = 10 // with more streams, the overview has no charts
)

type overviewData struct {
	Needs      []attention // empty: all is well, as far as is known
	Standby    bool        // another process knows more about a stream
	StreamRows []streamRow
}

func (p *Page) overviewView(span time.Duration) view {
	d := overviewData{StreamRows: p.streamRows(span)}
	var needs []attention
	for i := range d.StreamRows {
		if len(d.StreamRows) > chartStreams {
			d.StreamRows[i].Charts, d.StreamRows[i].Spans = nil, nil
		}
		needs = append(needs, d.StreamRows[i].Needs...)
	}
	d.Needs, d.Standby = urgent(needs), slices.ContainsFunc(d.StreamRows, func(l streamRow) bool { return !l.Knows })
	return view{Title: "Overview", Here: "overview", Data: d, JSON: "/api/v1/status", Live: livePath("", span)}
}

// urgent returns the needs that somebody should look at, worst first.
func urgent(needs []attention) []attention {
	urgent := slices.DeleteFunc(slices.Clone(needs), func(a attention) bool { return a.Level == status.Note })
	slices.SortStableFunc(urgent, byLevel)
	return urgent
}

func (p *Page) overview(w http.ResponseWriter, r *http.Request) {
	p.show(w, http.StatusOK, "overview", p.overviewView(spanOf(r)))
}

type streamData struct {
	Row           streamRow
	Activity      status.Activity
	Needs         []attention
	Standby       bool
	Database      string
	Configuration string
	Busy          []*chart // of topics, busiest first
	MoreParks     int
	Token         string // for a person who may act
	Pausing       pauseData
}

// streamView returns the page of a stream. With a token, which is new for each request, the page has forms.
func (p *Page) streamView(s *Stream, span time.Duration, token string) view {
	l, a := p.rowOf(s, span)
	l.Long = true
	d := streamData{Row: l, Standby: !l.Knows, Activity: a, Database: s.Database, Configuration: s.Configuration, MoreParks: l.Parks.Total - len(a.Parks)}
	d.Token, d.Pausing = token, pausing(s, token)
	d.Needs = urgent(l.Needs)
	d.Busy = p.busyTopics(&a, span)
	path := streamPath(s.Name)
	return view{Title: "Stream " + s.Name, Here: s.Name, Data: d, JSON: "/api/v1" + path, Live: livePath(s.Name, span)}
}

// livePath returns the address of a page's live updates.
func livePath(stream string, span time.Duration) string {
	q := url.Values{}
	if stream != "" {
		q.Set("stream", stream)
	}
	if span != 0 {
		q.Set("span", span.String())
	}
	return strings.TrimSuffix("/live?"+q.Encode(), "?")
}

// busyTopics draws the topics with the most rows in the last hour.
func (p *Page) busyTopics(a *status.Activity, span time.Duration) []*chart {
	rows := func(t *status.Topic) (sum float32) {
		for i := range t.History {
			sum += t.History[i].PerSecond
		}
		return sum
	}
	topics := slices.Clone(a.Topics)
	slices.SortStableFunc(topics, func(x, y status.Topic) int { return cmp.Compare(rows(&y), rows(&x)) })
	var busy []*chart
	for i := range topics[:min(len(topics), shownTopics)] {
		busy = append(busy, chartsOfTopic(&topics[i], a.History, span, p.cfg.Now())...)
	}
	return busy
}

func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	s := p.streamNamed(r.PathValue("stream"))
	if s == nil {
		p.say(w, http.StatusNotFound, "Not found", message{Text: "There is no stream " + operator.OneLine(r.PathValue("stream"), 200) + " in the configuration."})
		return
	}
	token := ""
	if s.Pauses != nil && p.cfg.MayAct(r) {
		token = p.forms.token(p.cfg.Who(r), p.cfg.Now())
	}
	p.show(w, http.StatusOK, "stream", p.streamView(s, spanOf(r), token))
}

type slotsData struct {
	Servers []Server
	Error   string
}

func (p *Page) slots(w http.ResponseWriter, r *http.Request) {
	servers, err := p.askSlots(r)
	d, code := slotsData{Servers: servers}, http.StatusOK
	if err != nil {
		d, code = slotsData{Error: err.Error()}, codeOf(err)
	}
	p.show(w, code, "slots", view{Title: "Slots", Here: "slots", Data: d, JSON: "/api/v1/slots"})
}

func (p *Page) askSlots(r *http.Request) ([]Server, error) {
	ctx, done, err := p.bounded(r, askTimeout)
	if err != nil {
		return nil, err
	}
	defer done()
	return p.cfg.Slots(ctx)
}
