package replication

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// plugin is the output plugin of our slots.
const plugin = "pgoutput"

// Undecodable says why rows cannot be read from the server's WAL, neither now nor with the
// first logical slot, and what to do. No reason: they can be. With wal_level = replica the
// first slot raises effective_wal_level, from version 19 on.
func (s *State) Undecodable() (reason string, hints []string) {
	if reason, hints := s.unknownCatalogue(); reason != "" {
		return reason, hints
	}
	if s.WALLevel != "logical" && (s.EffectiveLevel == "" || s.WALLevel == "minimal") {
		return fmt.Sprintf("wal_level is %s, not logical", s.WALLevel), s.Platform.Hints("ALTER SYSTEM SET wal_level = 'logical';", "restart PostgreSQL")
	}
	libraries := listed(s.Plugins)
	if slices.Contains(libraries, plugin) {
		return "", nil
	}
	return fmt.Sprintf("output_plugin_libraries is '%s', which does not name pgoutput", s.Plugins), s.Platform.Hints(allow(libraries...))
}

// names finds the names in a setting that is a list, quoted where they have to be.
var names = regexp.MustCompile(`"(?:[^"]|"")*"|[^\s,"]+`)

// listed are the names in a setting that is a list.
func listed(setting string) []string {
	all := names.FindAllString(setting, -1)
	for i, name := range all {
		if strings.HasPrefix(name, `"`) {
			all[i] = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
		}
	}
	return all
}

// allow is the statement that lets pgoutput be used next to other libraries. A quoted list would
// be taken for one name.
func allow(others ...string) string {
	list := plugin
	for _, other := range others {
		list += ", " + sql.Identifier(other)
	}
	return "ALTER SYSTEM SET output_plugin_libraries = " + list + "; SELECT pg_reload_conf();"
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
