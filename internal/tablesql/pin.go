package tablesql

import "strings"

// Pin returns the steps that lock the relations, and the tables of their headers, in a transaction that has
// no snapshot yet. Without the lock, a rewrite that is not MVCC-safe (REPACK (CONCURRENTLY), TRUNCATE, ALTER
// TABLE) could end between snapshot and read, and the snapshot would then see an empty table. ACCESS SHARE
// keeps such a rewrite from ending. The lock needs SELECT on the whole table.
// https://www.postgresql.org/docs/current/mvcc-caveats.html
func (s Settings) Pin(relations ...*Relation) []Step {
	var names []string
	for _, r := range relations {
		for _, one := range []*Relation{r, r.side} {
			if one != nil && one.SystemColumns {
				names = append(names, one.Name())
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Step{ // utility statements take no snapshot; SELECT set_config would take one
		{SQL: "SET LOCAL lock_timeout = " + millis(s.LockTimeout)},
		{SQL: "SET LOCAL statement_timeout = " + millis(s.StatementTimeout)},
		{SQL: "LOCK TABLE " + strings.Join(names, ", ") + " IN ACCESS SHARE MODE"},
	}
}
