package page

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file pauses and resumes a stream or one of its tables. It first shows what that does, and does it
// after a confirmation.

// The verbs.
const (
	Pause  = "pause"
	Resume = "resume"
)

// The log's messages for them. The commands log them too.
const (
	PausedMessage  = "an operator paused a stream or a table"
	ResumedMessage = "an operator resumed a stream or a table"
)

// Pauses pauses and resumes a stream.
type Pauses struct {
	// May returns why the stream, or the table if one is named, cannot be paused.
	May func(table string) error
	// Change pauses or resumes in somebody's name, and returns what is paused then. With an empty verb it
	// changes nothing.
	Change func(ctx context.Context, verb, table, by string) ([]outbox.Park, error)
}

// pauseData is the page before and after.
type pauseData struct {
	Stream, Table, Verb, Token string
	Tables                     []string // the tables to choose from
	Paused                     []outbox.Park
	Done                       bool
	Problem                    string
	Wrong                      bool // the choice is wrong
}

// pausing returns the form before anything is chosen.
func pausing(s *Stream, token string) pauseData {
	d := pauseData{Stream: s.Name, Token: token}
	for _, t := range s.Report().Tables {
		d.Tables = append(d.Tables, t.Name)
	}
	return d
}

// pause answers a form. It changes nothing unless the form says "confirmed".
func (p *Page) pause(w http.ResponseWriter, r *http.Request) {
	if !p.ours(w, r) {
		return
	}
	s := p.streamNamed(r.PathValue("stream"))
	if s == nil || s.Pauses == nil {
		p.missing(w, r)
		return
	}
	d := pausing(s, p.forms.token(p.cfg.Who(r), p.cfg.Now()))
	d.Table, d.Verb = r.PostForm.Get("table"), r.PostForm.Get("verb")
	code, title := http.StatusOK, "Confirm"
	if err := p.changePause(r, s, &d, r.PostForm.Get("confirmed") == "yes"); err != nil {
		code, d.Problem = codeOf(err), err.Error()
		d.Wrong = code < http.StatusInternalServerError
	} else if d.Done {
		title = "Done"
	}
	p.show(w, code, "pause", view{Title: title, Here: s.Name, Data: d})
}

func (p *Page) changePause(r *http.Request, s *Stream, d *pauseData, confirmed bool) error {
	ctx, done, err := p.bounded(r, askTimeout)
	if err != nil {
		return err
	}
	defer done()
	switch d.Verb {
	case Pause:
		if err := s.Pauses.May(d.Table); err != nil {
			return &asked{http.StatusUnprocessableEntity, err.Error()}
		}
	case Resume:
	default:
		return &asked{http.StatusBadRequest, "choose what is to be done: pause or resume"}
	}
	if d.Paused, err = s.Pauses.Change(ctx, "", d.Table, ""); err != nil {
		return err
	}
	if d.Verb == Resume && !paused(d.Paused, d.Table) {
		return &asked{http.StatusConflict, strings.TrimSpace("nothing of it is paused " + d.Table)}
	}
	if !confirmed {
		return nil
	}
	now, err := s.Pauses.Change(ctx, d.Verb, d.Table, p.cfg.Who(r)+" on the page")
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(err, errors.New("it may have been done all the same: reload the page"))
	}
	if err != nil {
		return err
	}
	d.Paused, d.Done = now, true
	said := map[string]string{Pause: PausedMessage, Resume: ResumedMessage}[d.Verb]
	log := p.cfg.Log.Level(zerolog.InfoLevel)
	log.Info().Str("user", p.cfg.Who(r)).Str("remote", r.RemoteAddr).Str("by", "page").Str("stream", s.Name).Str("table", d.Table).Msg(said)
	return nil
}

// paused reports whether the table is paused. If no table is named, it reports whether anything is.
func paused(parks []outbox.Park, table string) bool {
	for i := range parks {
		if table == "" || parks[i].Scope.Table == table {
			return true
		}
	}
	return false
}
