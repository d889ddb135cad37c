package replication

import (
	"fmt"
	"strings"
)

// Undecodable says why rows cannot be read from the server's WAL, neither now nor with the
// first logical slot, and what to do. No reason: they can be. With wal_level = replica the
// first slot raises effective_wal_level, from version 19 on.
func (s *State) Undecodable() (reason string, hints []string) {
	if s.WALLevel == "logical" || s.EffectiveLevel != "" && s.WALLevel != "minimal" {
		return "", nil
	}
	return fmt.Sprintf("wal_level is %s, not logical", s.WALLevel), s.Platform.Hints("ALTER SYSTEM SET wal_level = 'logical';", "restart PostgreSQL")
}

// Decoding says which level is in force, and why. It is for a server that decodes.
func (s *State) Decoding() string {
	switch {
	case s.WALLevel == "logical":
		return "wal_level is logical"
	case s.EffectiveLevel == "logical":
		return fmt.Sprintf("wal_level is %s, and effective_wal_level is logical while there is a logical slot", s.WALLevel)
	}
	return fmt.Sprintf("wal_level is %s; the first logical slot raises effective_wal_level, which is %s, to logical without a restart", s.WALLevel, s.EffectiveLevel)
}

func oneHint(hints []string) string { return strings.Join(hints, " and ") }
