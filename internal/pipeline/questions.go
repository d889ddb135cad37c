package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/loglimit"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
)

// questions are how the database is asked: each by a goroutine of its own, its answer taken in the driver's loop.
// What the Core asks is in carryout. Other goroutines use questions, too, to do something in the loop, or to end it.
type questions struct {
	*telling
	stream  string
	wal     *link
	pool    *pgxpool.Pool
	answers *mailbox.Mailbox[answer]
	running sync.WaitGroup
	// fatal takes the error that ends the leadership.
	fatal chan error

	// connection counts replication connections. Answers to questions of an
	// earlier one are dropped, and asking ends with it.
	connection int
	asking     context.Context //nolint:containedctx // ends with the replication connection, not with a call
	endAsking  context.CancelFunc
}

func newQuestions(t *telling, stream string, wal *link, pool *pgxpool.Pool) *questions {
	return &questions{telling: t, stream: stream, wal: wal, pool: pool, answers: mailbox.New[answer](), fatal: make(chan error, 1)}
}

// answer is what a query found out, applied by the driver.
type answer struct {
	connection int // 0: whichever
	apply      func()
}

// forget voids those of the connection before.
func (q *questions) forget(ctx context.Context) {
	if q.endAsking != nil {
		q.endAsking()
	}
	q.connection++
	q.asking, q.endAsking = context.WithCancel(ctx)
}

// ask puts a question to the database, and what its answer leads to into the driver's
// queue. A passing error is tried again until the connection ends.
func (q *questions) ask(what string, query func(context.Context) (apply func(), err error)) {
	connection, ctx := q.connection, q.asking
	q.running.Go(func() {
		if apply, err := retry(ctx, q, what, query); err == nil {
			q.answers.Put(answer{connection, apply})
		}
	})
}

// askTables asks a question that a table may refuse (a column or a privilege is
// missing): that is an answer, too, and the Core's business.
func askTables[Q, A any](q *questions, what string, question Q, query func(context.Context, Q) (A, error), apply func(A), refused func(*outbox.Table, error)) {
	q.ask(what, func(ctx context.Context) (func(), error) {
		a, err := query(ctx, question)
		if refusal := refusalOf(err); refusal != nil {
			q.explain(ctx, q.pool, q.stream, refusal)
			return func() { refused(refusal.Table, refusal) }, nil //nolint:nilerr // an answer, too
		}
		return func() { apply(a) }, err
	})
}

// retry tries a query until ctx ends or an error is permanent, up to every five seconds, each
// error logged.
func retry[A any](ctx context.Context, q *questions, what string, query func(context.Context) (A, error)) (A, error) {
	failed := func(err error, wait time.Duration) {
		if !errors.Is(err, context.Canceled) {
			q.wal.closeOnShutdown(err)
			q.log.Warn().Ctx(loglimit.Because(q.stream, postgres.ServerWide(err))).Err(err).Str("query", what).Dur("retry_in", wait).Msg("the database query failed")
		}
	}
	return backoff.Retry(ctx, func() (A, error) { return query(ctx) },
		backoff.WithBackOff(growing(50*time.Millisecond, 5*time.Second)), backoff.WithMaxElapsedTime(0), backoff.WithNotify(failed))
}

// growing are waits that grow from one to the other.
func growing(first, most time.Duration) *backoff.ExponentialBackOff {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = first, most
	return waits
}

// refusalOf is a table's refusal of a query; nil: the error is none.
func refusalOf(err error) *sweeper.TableError {
	refusal, _ := errors.AsType[*sweeper.TableError](err)
	return refusal
}

// unkept says of an error that what the stream must not forget is not kept any
// more: another process leads, or our schema is gone.
func unkept(err error) bool {
	return errors.Is(err, statestore.ErrFenced) || errors.Is(err, statestore.ErrNoSchema)
}

// retried logs that a task failed which is done again after a while. That the database is away is told once.
func (q *questions) retried(ctx context.Context, err error, after time.Duration, what string) {
	if err == nil || ctx.Err() != nil {
		return
	}
	q.wal.closeOnShutdown(err)
	level := zerolog.WarnLevel
	if q.failed.Load() != nil && q.unreachable.Load() && postgres.Unreachable(err) {
		level = zerolog.DebugLevel
	}
	q.log.WithLevel(level).Ctx(loglimit.Because(q.stream, postgres.ServerWide(err))).Err(err).Dur("retry_in", after).Msg(what)
}

// inLoop has the driver's loop do something, and waits until it is done.
func (q *questions) inLoop(ctx context.Context, do func()) error {
	done := make(chan struct{})
	q.answers.Put(answer{0, func() {
		do()
		close(done)
	}})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the leadership.
func (q *questions) end(err error) {
	select {
	case q.fatal <- err:
	default: // another error ends it
	}
}
