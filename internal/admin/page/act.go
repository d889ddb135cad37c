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

// This file requeues and discards FAILED rows, and replays SENT rows. It first shows what would be done, and
// does it after a confirmation.

// actLimit is the largest number of rows in one act. The rest needs another act, or the command.
const actLimit = 5000

// order is an operation as a form requests it.
type order struct {
	filter
	Verb   string // requeue, replay, delete, dismiss
	Status string // for dismiss
	IDs    []string
	// Matching: the act is for all rows that the filter matches, instead of those in IDs.
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
	From  string // the state that rows must have
	Taken int64
	// Found is how soon requeued rows will be found.
	Found string
	Limit int
}

var actions = map[string]operator.Action{"requeue": operator.Requeue, "replay": operator.Replay, "delete": operator.Delete, "dismiss": operator.Dismiss}

// ours reports whether a form was sent from our own page by a person who may act. If not, it has already
// answered the request.
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

// act answers a form. It changes nothing unless the form says "confirmed".
func (p *Page) act(w http.ResponseWriter, r *http.Request) {
	if !p.ours(w, r) {
		return
	}
	o := order{
		filter: filterOf(r.PostForm), Verb: r.PostForm.Get("verb"), Status: r.PostForm.Get("status"),
		IDs: r.PostForm["id"], Matching: r.PostForm.Get("matching") == "yes",
	}
	if o.Verb == "enter" { // sent by the Enter key in a field of the form
		o.Verb = "requeue"
		if o.Status != "" {
			o.Verb = "dismiss"
		}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actTimeout)) // not every ResponseWriter supports it
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

// operation returns the operation for package operator.
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

// statusFault turns the table's refusal of a status into an error of that form field.
func statusFault(op *operator.Operation, err error) error {
	_, unfit := errors.AsType[*tablesql.MappingError](err)
	if op.Action != operator.Dismiss || !unfit && tablesql.FaultOf(err) != tablesql.RowRefused {
		return err
	}
	return &wrongField{asked{http.StatusUnprocessableEntity, err.Error()}, "status"}
}

// Again reports whether the same act can be tried once more, perhaps with another status.
func (d *actData) Again() bool {
	return d.Problem != "" && d.Result == nil && actions[d.Verb] != "" && (d.Matching || len(d.IDs) > 0)
}
