package history

import "fmt"

// checkSamples is I6, I8 and I9.
func (c *checker) checkSamples() {
	// committed are positions behind the commits of rows that were PENDING before.
	committed := map[string]uint64{}
	told := map[string]bool{}
	var before Sample
	for i := range c.h.Samples {
		s := &c.h.Samples[i]
		for _, ref := range s.Pending {
			if behind, seen := committed[ref]; seen {
				c.checkPassed(ref, behind, i, told)
			} else {
				committed[ref] = s.End
			}
		}
		c.checkSlot(&before, s, i)
		if limit := c.rules.Memory; limit > 0 && s.Memory > limit {
			c.sampled("I9", fmt.Sprintf("a process has %d bytes of memory, %d are allowed", s.Memory, limit), i, "memory", told)
		}
		before = *s
	}
}

// checkPassed is I6 for one row that is PENDING, and was in an earlier sample at
// whose end its commit was in the WAL for certain. A row that is PENDING after the
// confirmed position was read was so when it was read, and a park that is gone since
// would have left the row to nobody.
func (c *checker) checkPassed(ref string, behind uint64, i int, told map[string]bool) {
	s := &c.h.Samples[i]
	in := c.inserts[ref]
	if c.rules.Missed || c.rules.Stateless || s.Confirmed == 0 || s.Confirmed < behind || told[ref] ||
		in == nil || in.Outcome == TakenBack || c.rules.Late != nil && c.rules.Late(*in) {
		return
	}
	told[ref] = true
	c.violated("I6", "a row is PENDING, no park covers it, and the slot is confirmed past its commit", ref,
		fmt.Sprintf("sample %d: confirmed %s, and the WAL ended at %s when the row was there already", i, position(s.Confirmed), position(behind)))
}

// checkSlot compares two samples of one replication connection: the position does
// not go back (I6), and what is held back does not grow beyond the budget (I8). A
// connection that begins beyond it has to work it off first.
func (c *checker) checkSlot(before, s *Sample, i int) {
	if s.PID == 0 || s.PID != before.PID || s.Confirmed == 0 || before.Confirmed == 0 {
		return
	}
	if s.Confirmed < before.Confirmed {
		c.found = append(c.found, Violation{"I6", "the confirmed position went back within one connection", []string{
			fmt.Sprintf("sample %d: confirmed %s after %s", i, position(s.Confirmed), position(before.Confirmed)),
		}})
	}
	if limit := c.rules.WALBudget; limit > 0 && s.Retained > limit && before.Retained <= limit {
		c.found = append(c.found, Violation{"I8", "the slot came to hold back more of the WAL than its budget", []string{
			fmt.Sprintf("sample %d: %d bytes after %d, %d are allowed", i, s.Retained, before.Retained, limit),
		}})
	}
}

// sampled tells a violation once.
func (c *checker) sampled(invariant, what string, i int, once string, told map[string]bool) {
	if told[once] {
		return
	}
	told[once] = true
	c.found = append(c.found, Violation{invariant, what, []string{fmt.Sprintf("sample %d", i)}})
}

// position prints a position of the WAL as PostgreSQL does.
func position(at uint64) string { return fmt.Sprintf("%X/%X", at>>32, uint32(at)) }
