package replication

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// plugin is the output plugin that our slots use.
const plugin = "pgoutput"

// Undecodable returns the reason why the server cannot decode its WAL, even after the first logical slot is
// made, and hints for fixing it. An empty reason means that decoding works. From version 19 on, wal_level =
// replica is enough: the first logical slot raises effective_wal_level.
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

// names matches one name in a setting that is a list. A name may be quoted.
var names = regexp.MustCompile(`"(?:[^"]|"")*"|[^\s,"]+`)

// listed returns the unquoted names in a setting that is a list.
func listed(setting string) []string {
	all := names.FindAllString(setting, -1)
	for i, name := range all {
		if strings.HasPrefix(name, `"`) {
			all[i] = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
		}
	}
	return all
}

// allow returns the statement that permits pgoutput next to the other libraries. Each name is quoted by
// itself: the server would take one quoted list for a single name.
func allow(others ...string) string {
	list := plugin
	for _, other := range others {
		list += ", " + sql.Identifier(other)
	}
	return "ALTER SYSTEM SET output_plugin_libraries = " + list + "; SELECT pg_reload_conf();"
}

// Decoding returns a phrase about the WAL level in force and its origin. The server must be able to decode
// (see Undecodable).
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
