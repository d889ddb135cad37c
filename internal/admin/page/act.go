package page

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// This file requeues and discards FAILED rows, and replays SENT ones: first it shows what would be
// done, and does it once that is confirmed.

// actLimit is the most rows of one act; the rest needs another, or the command.
const actLimit = 5000

// order is an operation as a form orders it.
type order struct {
	filter
	Verb   string // requeue, replay, delete, dismiss
	Status string // of dismiss
	IDs    []string
	// Matching: all that the filter matches, instead of IDs.
	Matching bool
}

// actData is the page before and after an act.
type actData struct {
	order
	Token   string
	Plan    *operator.Plan
	Result  *operator.Result
	Problem string
	// Wrong is the field of the form that the problem is about, or empty.
	Wrong string
	Back  string
	From  string // the state that rows have to be in
	Taken int64
	// Found is how soon requeued rows are found.
	Found string
	Limit int
}

var actions = map[string]operator.Action{"requeue": operator.Requeue, "replay": operator.Replay, "delete": operator.Delete, "dismiss": operator.Dismiss}

// ours says whether a form came from a person who may act, on our own page. If not, it has answered.
func (p *Page) ours(w http.ResponseWriter, r *http.Request) bool {
	err := sameOrigin(r)
	if err == nil && !p.cfg.MayAct(r) {
		err = errNotAllowed
	}
	if err == nil {
		err = r.ParseForm()
	}
	if err == nil {
		err = p.forms.ours(r.PostForm.Get("token"), p.cfg.Who(r), p.cfg.Now())
	}
	if err != nil {
		p.cfg.Log.Warn().Err(err).Str("user", p.cfg.Who(r)).Str("remote", r.RemoteAddr).Msg("a form was refused")
		p.say(w, http.StatusForbidden, "Refused", message{Text: err.Error()})
	}
	return err == nil
}

// act answers a form. Nothing is changed unless it says confirmed.
func (p *Page) act(w http.ResponseWriter, r *http.Request) {
	if !p.ours(w, r) {
		return
	}
	o := order{
		filter: filterOf(r.PostForm), Verb: r.PostForm.Get("verb"), Status: r.PostForm.Get("status"),
		IDs: r.PostForm["id"], Matching: r.PostForm.Get("matching") == "yes",
	}
	if o.Verb == "enter" { // the key, in the field of the status or elsewhere
		o.Verb = "requeue"
		if o.Status != "" {
			o.Verb = "dismiss"
		}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actTimeout)) // not of every ResponseWriter
	d, err := p.carryOut(r, &o, r.PostForm.Get("confirmed") == "yes")
	code := http.StatusOK
	if err != nil {
		code, d.Problem, d.Wrong = codeOf(err), err.Error(), fieldOf(err)
	}
	d.From = actions[o.Verb].State().String()
	o.filter.State = strings.ToLower(d.From)
	d.order, d.Limit, d.Token, d.Back = o, actLimit, p.forms.token(p.cfg.Who(r), p.cfg.Now()), o.Path()
	title := "Confirm"
	if d.Result != nil {
		title = "Done"
	}
	p.show(w, code, "act", view{Title: title, Here: "failed", Data: &d})
}

// operation is what package operator is told.
func (p *Page) operation(o *order, t *outbox.Table) (operator.Operation, error) {
	op := operator.Operation{Action: actions[o.Verb], Status: o.Status, Limit: actLimit}
	switch {
	case op.Action == "":
		return op, &asked{http.StatusBadRequest, "choose what is to be done: requeue, replay, delete, or another status"}
	case op.Action == operator.Dismiss && o.Status == "":
		return op, &wrongField{asked{http.StatusBadRequest, "write the status that the rows are to get, such as ARCHIVED"}, "status"}
	case !o.Matching && len(o.IDs) == 0:
		return op, &asked{http.StatusBadRequest, "choose at least one row, or all that match"}
	}
	var err error
	if o.Matching {
		op.Filter, err = p.pick(&o.filter, op.Action.State())
		return op, err
	}
	for _, text := range o.IDs {
		id, err := rowID(text, t)
		if err != nil {
			return op, err
		}
		op.Filter.IDs = append(op.Filter.IDs, id)
	}
	return op, nil
}

func (p *Page) carryOut(r *http.Request, o *order, confirmed bool) (actData, error) {
	var d actData
	s, t, err := p.table(o.Stream, o.Table)
	if err != nil {
		return d, err
	}
	op, err := p.operation(o, t)
	if err != nil {
		return d, err
	}
	if s.Found != nil {
		d.Found = s.Found(t).String()
	}
	err = p.onTable(r, actTimeout, s, t, func(ctx context.Context, table *opened) error {
		if !confirmed {
			plan, err := table.Plan(ctx, op)
			d.Plan, d.Taken = &plan, plan.Taken
			return statusFault(&op, err)
		}
		result, err := table.Do(ctx, op)
		d.Result = &result
		picked := o.query().Encode()
		if !o.Matching {
			picked = "chosen rows"
		}
		table.Audit(p.cfg.Log, s.Name, &op, &result, err, func(e *zerolog.Event) {
			e.Str("user", p.cfg.Who(r)).Str("remote", r.RemoteAddr).Str("by", "page").Str("filter", picked).Str("status", op.Status)
		})
		if s.Changed != nil {
			s.Changed()
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.Join(err, errors.New("the page does not wait longer: the command outbox-cdc failed does"))
		}
		if err != nil && result.Changed == 0 && result.Unknown == 0 {
			d.Result = nil
			err = statusFault(&op, err)
		}
		return err
	})
	return d, err
}

// statusFault makes the table's refusal of a status an error of that field of the form.
func statusFault(op *operator.Operation, err error) error {
	_, unfit := errors.AsType[*tablesql.MappingError](err)
	if op.Action != operator.Dismiss || !unfit && tablesql.FaultOf(err) != tablesql.RowRefused {
		return err
	}
	return &wrongField{asked{http.StatusUnprocessableEntity, err.Error()}, "status"}
}

// Again: the same can be tried once more, perhaps with another status.
func (d *actData) Again() bool {
	return d.Problem != "" && d.Result == nil && actions[d.Verb] != "" && (d.Matching || len(d.IDs) > 0)
}
