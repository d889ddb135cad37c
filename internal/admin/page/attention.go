package page

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// attention is something that somebody should look at, with its fix.
type attention struct {
	Level  string `json:"level"` // bad, warn, note
	Stream string `json:"stream"`
	Text   string `json:"text"`
	Hint   string `json:"mend"`
	// Link is where to look, or empty.
	Link, LinkText string `json:"-"`
}

// When a slot's end is near, and when it is told at all: what holds back little WAL for
// moments always grows a bit or shrinks a bit.
const (
	urgentLoss = 3600 // seconds
	toldLoss   = 48 * 3600
)

var levels = map[string]int{"bad": 0, "warn": 1, "note": 2}

func byLevel(a, b attention) int { return cmp.Compare(levels[a.Level], levels[b.Level]) }

// needsOf lists what a stream needs, the most urgent first. It is pure.
func needsOf(s *status.Stream) []attention {
	var list []attention
	add := func(level, text, hint string) *attention {
		list = append(list, attention{Level: level, Stream: s.Name, Text: text, Hint: hint})
		return &list[len(list)-1]
	}
	if s.Error != "" {
		add("bad", "It does not work: "+s.Error, "outbox-cdc check --stream "+s.Name+" says what is wrong, and the command that fixes it.")
	}
	switch slot := s.Slot; {
	case slot == nil:
	case slot.WALStatus == "lost":
		add("bad", "The server has dropped what slot "+slot.Name+" needs.",
			"Nothing is lost: the stream re-creates the slot and reads its rows from the table. Raise max_slot_wal_keep_size if it comes again.")
	case slot.Loss != nil && slot.Loss.By == status.LossByServer && slot.Loss.Seconds < urgentLoss:
		add("bad", "Slot "+slot.Name+" is "+slot.Loss.Text()+".",
			"Raise max_slot_wal_keep_size, or fix what holds the stream up. Nothing is lost either way: rows are then read from the table.")
	case slot.Loss != nil && slot.Loss.Seconds < urgentLoss:
		add("warn", "Slot "+slot.Name+" is "+slot.Loss.Text()+".",
			"Fix what holds the stream up, or raise wal_budget where the primary's disk has room.")
	}
	if s.Slot != nil && s.Slot.HeldBy != "" {
		add("warn", "Slot "+s.Slot.Name+" holds back "+status.Bytes(s.Slot.Retained)+" of WAL because of "+s.Slot.HeldBy+".",
			"End that transaction. Sweeping frees nothing of it; above wal_budget the slot is given up, unless give_up_slot is false.")
	}
	for _, c := range s.Kafka {
		if !c.Usable {
			add("bad", "Kafka cluster "+c.Name+" cannot be used: "+c.Error,
				"Nothing is lost: its rows wait and go on by themselves once a broker answers. Look at the brokers, the network and the credentials.")
		}
	}
	for _, g := range s.Parks.Top {
		level := "warn"
		if g.Kind == "key" || g.Kind == "row" {
			level = "note"
		}
		a := add(level, "Parked: "+g.Scopes()+": "+g.Reason, hintOf(g.Cause))
		a.Link, a.LinkText = streamPath(s.Name)+"#parks", "What is parked"
	}
	for _, t := range s.Tables {
		if t.Failed == nil || *t.Failed == 0 {
			continue
		}
		rows := strings.Replace(rowsText(*t.Failed, t.FailedCapped), "more", "More", 1)
		a := add("warn", fmt.Sprintf("%s FAILED in table %s.", rows, t.Name),
			"They will not be published until somebody requeues them. Look at their errors, fix the cause, then requeue or discard them.")
		a.Link, a.LinkText = failedPath(s.Name, t.Name), "Look at them"
	}
	slices.SortStableFunc(list, byLevel)
	return list
}

// hintOf says what ends a park, by its cause.
func hintOf(cause string) string {
	switch cause {
	case "topic":
		return "Create the topic, or allow the writing to it; it is tried again by itself."
	case "mapping", "unreadable":
		return "outbox-cdc config validate --against-database lists every difference between the table and its mapping."
	case "write_back":
		return "The database refuses to mark what was published: the reason names a right, a constraint or a trigger. It is tried again by itself; a single row holds up no other."
	case "publication":
		return "outbox-cdc init puts the publication right; the table is swept meanwhile, and nothing is lost."
	case "paused":
		return "Nothing of it is published until outbox-cdc resume."
	case "resumed":
		return "Nothing to do: what came while it was paused is published first, then the stream goes on by itself."
	case "row_error", "blocked":
		return "Other keys go on. A row that uses up its tries is FAILED: look at its error then, and requeue or discard it."
	}
	return "Nothing to do: the rows are read from the table, and the stream goes on by itself."
}

func rowsText(n int64, more bool) string {
	if n == 1 && !more {
		return "1 row is"
	}
	return cappedText(&n, more) + " rows are"
}

func streamPath(name string) string { return "/streams/" + url.PathEscape(name) }

func failedPath(stream, table string) string {
	return "/failed?" + url.Values{"stream": {stream}, "table": {table}}.Encode()
}

// thousands prints a count with separators.
func thousands[N int | int64 | uint64](n N) string {
	digits := fmt.Sprint(n)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
