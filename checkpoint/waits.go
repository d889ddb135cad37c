package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// topicWait is what the park of a topic, or of a table's unknown topics, waits for.
type topicWait struct {
	// listed: brokers have listed the topic since it failed last, so it may be swept. Never of
	// unknown topics: those that are listed get parks of their own.
	listed bool
	// scan is what is looked for next. While it is scanNone brokers are to list topics first.
	scan scan
	// knownTopics, of unknown topics and never nil there: those that are none of them. None is
	// taken out while the park lasts, and every topic with a park of its own is in it.
	knownTopics map[outbox.Scope]bool
}

// takes says that the row's topic is none of the known ones.
func (w *topicWait) takes(r *outbox.Row) bool {
	return !w.knownTopics[outbox.TopicScope(r.Cluster, r.Topic)]
}

// blockedKey is what the park of a key knows of its failed rows.
type blockedKey struct {
	// failedRow is the id of the row that failed last, if this process knows. Only it can end
	// the key's trouble.
	failedRow string
	// blocker is of CauseBlocked; of any other cause it is stillFailed. While one is sought,
	// Core.seeking is set.
	blocker blocker
}

// unmarkedRow is what the park of such a row knows. No other park has any of it.
type unmarkedRow struct {
	// mark is the outstanding one, or nil: there is one at a time.
	mark *outbox.Row
	// left: the row is one of Core.Left's. The database remembers it by itself, so the park
	// counts as durable and is not written.
	left bool
	// alsoLeft are when others were created that had the row's id before or after it, and are
	// left too. Each is marked in its turn; it is not empty only if left is set.
	alsoLeft []int64
}

// alsoOf says that the row is one of alsoLeft.
func (u *unmarkedRow) alsoOf(r *outbox.Row) bool {
	return slices.ContainsFunc(u.alsoLeft, func(created int64) bool { return same(created, r.CreatedAt) })
}

// same says whether two rows with one id are one, as far as is known.
func same(created, other int64) bool {
	return created == other || created == 0 || other == 0
}

// tableTrouble is what the park of a table remembers.
type tableTrouble struct {
	refusedAt uint64 // when the table last refused a statement, in generations
	hurried   bool   // its keys' back-off was ended
	// spending: it has hurried, and no page of it was small since; see Core.spends.
	spending bool
}
