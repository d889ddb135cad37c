package exactlyonce

import (
	"fmt"
	"slices"
	"strconv"
)

// Stream is what the configuration says of a stream that delivers exactly once.
type Stream struct {
	Name    string
	Cluster string
	Journal string // topic
	// Claims, HeadStart, ShedLock: another relay may publish rows of the table.
	Claims, HeadStart, ShedLock bool
}

// Conflicts are reasons why these streams cannot deliver exactly once.
func Conflicts(streams []Stream) []string {
	var out []string
	owner := map[[2]string]string{}
	for _, s := range streams {
		if s.Claims || s.HeadStart || s.ShedLock {
			out = append(out, fmt.Sprintf("stream %s: another relay may publish its rows (claim, head_start, shedlock): nobody can know which of them it published", s.Name))
		}
		journal := [2]string{s.Cluster, s.Journal}
		if other, taken := owner[journal]; taken {
			out = append(out, fmt.Sprintf("streams %s and %s have one journal, %s: units of both would be counted as one", other, s.Name, s.Journal))
		}
		owner[journal] = s.Name
	}
	return out
}

// OpenTally is a tally in the database that is not closed.
type OpenTally struct{ Stream, Cluster string }

// Orphans are open tallies that nobody of the configuration recovers: their journals name
// rows that were published and may not be marked. Other streams must not publish the
// tables before.
func Orphans(open []OpenTally, streams []Stream) []OpenTally {
	return slices.DeleteFunc(slices.Clone(open), func(t OpenTally) bool {
		return slices.ContainsFunc(streams, func(s Stream) bool { return s.Name == t.Stream && s.Cluster == t.Cluster })
	})
}

// nameBytes is more than a name takes in the journal, of an id of 64 characters.
const nameBytes = 128

// JournalBytes is how much of the journal has to be kept: ten times the names of all rows
// that can be published and not marked, for failovers that lose marks.
func JournalBytes(memoryRows int) int64 { return max(int64(memoryRows)*nameBytes*10, 64<<20) }

// Unfit are the settings of a journal's topic by which units could be lost.
func Unfit(settings map[string]string, partitions, memoryRows int) []string {
	var out []string
	want := func(name, value string) {
		if settings[name] != value {
			out = append(out, fmt.Sprintf("%s is %q, must be %q", name, settings[name], value))
		}
	}
	want("cleanup.policy", "delete")
	want("retention.ms", "-1") // a stream may be down for any time
	want("unclean.leader.election.enable", "false")
	if n, err := strconv.ParseInt(settings["retention.bytes"], 10, 64); err != nil || n >= 0 && n < JournalBytes(memoryRows) {
		out = append(out, fmt.Sprintf("retention.bytes is %q, must be at least %d, or -1", settings["retention.bytes"], JournalBytes(memoryRows)))
	}
	if partitions != 1 {
		out = append(out, fmt.Sprintf("it has %d partitions, must have 1", partitions))
	}
	return out
}

// HeldUp is how many seconds a transaction that a dead process left open holds consumers
// up at most, when nobody takes over: brokers look for those that are over every 10 s.
func HeldUp(timeoutSeconds int) int { return timeoutSeconds + 10 }
