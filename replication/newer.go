package replication

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Newest is the newest major version of PostgreSQL whose catalogue this program knows. A newer server is
// treated as this version, once it has shown that it has every name that our statements use.
const Newest = 19

// Named is the server's version as people write it, for example "18.2".
func (s *State) Named() string { return fmt.Sprintf("%d.%d", s.Version/10_000, s.Version%10_000) }

// Newer reports whether the server's major version is later than Newest, so that its catalogue may differ.
func (s *State) Newer() bool { return s.Version/10_000 > Newest }

// asked are the statements that read the catalogue. without names what stays unknown where a statement does
// not work; empty: the stream needs the statement.
var (
	asked = []struct {
		sql     string
		args    []any
		without string
	}{
		{sql: sql.InspectSlot, args: []any{""}},
		{sql: sql.InspectPublication, args: []any{""}},
		{sql: sql.WithPublished(Newest, sql.InspectTables), args: []any{[][2]string{}, ""}},
		{sql: sql.Watch, args: []any{"", "", [][2]string{}}},
		{sql: sql.Standbys, args: []any{int64(0), ""}}, // sent together with Watch
		{sql: sql.LockHolder, args: []any{int64(0)}},
		{sql: sql.LockHeld, args: []any{int64(0)}},
		{sql: sql.Platform},
		{sql: sql.Timeline},
		{sql: sql.WALEnd},
		{sql: sql.Heartbeat},
		{sql: sql.Pressure, without: "for whom limits.back_off should slow down"},
		{sql: sql.SlotBlockers, without: "who holds back WAL"},
		{sql: sql.TableLockers, args: []any{[][2]string{}}, without: "who has a table locked"},
		{sql: sql.SlotsList, without: "what outbox-cdc slots lists"},
	}
	// sinceThen are columns that older servers lack. Our statements work without them, so a newer server that
	// lacks one would be taken for an old server.
	sinceThen = []struct{ relation, name, without string }{
		{relation: "pg_publication_rel", name: "prexcept"}, // without it, an excluded table would be taken for a published one
		{relation: "pg_publication", name: "pubgencols"},
		{relation: "pg_replication_slots", name: "synced"},
		{relation: "pg_replication_slots", name: "failover", without: "whether the slot is kept on standbys"},
		{relation: "pg_replication_slots", name: "invalidation_reason", without: "why the server gave a slot up"},
	}
)

// newer asks a server beyond Newest whether it has every name that our statements use. EXPLAIN resolves the
// names without running the statement.
func (in *inspection) newer() {
	for _, c := range sinceThen {
		found := in.rows(1, `SELECT a.attname::text FROM pg_catalog.pg_attribute a
			WHERE a.attrelid = pg_catalog.to_regclass('pg_catalog.' || $1) AND a.attname = $2 AND NOT a.attisdropped`, c.relation, c.name)
		if len(found) == 0 {
			in.lacks(c.relation+"."+c.name, c.without)
		}
	}
	for i := range asked {
		s := &asked[i]
		text, err := sql.Bind("EXPLAIN "+s.sql, s.args...)
		if err == nil && in.err == nil {
			_, err = run(in.ctx, in.pg, text)
		}
		code := postgres.Code(err)
		switch {
		case err == nil:
		case pgerrcode.IsSyntaxErrororAccessRuleViolation(code) && code != pgerrcode.InsufficientPrivilege:
			in.lacks(unknownIn(text, err), s.without)
		case in.err == nil:
			in.err = err
		}
	}
}

// lacks records a name that the server does not have, once.
func (in *inspection) lacks(name, without string) {
	if in.err != nil {
		return
	}
	if without != "" {
		in.state.Untold = append(in.state.Untold, without+" ("+name+")")
	} else if !strings.Contains(strings.Join(in.state.Lacking, ", "), name) {
		in.state.Lacking = append(in.state.Lacking, name)
	}
}

// identifier matches a possibly qualified name in a statement.
var identifier = regexp.MustCompile(`^[\w.]+`)

// unknownIn returns the name in the statement that the server's error is about. If the statement qualifies a
// column, the result has the relation's name too.
func unknownIn(statement string, err error) string {
	server := postgres.ServerError(err)
	text, at := []rune(statement), int(server.Position)-1
	if at < 0 || at >= len(text) {
		return server.Message
	}
	found := identifier.FindString(string(text[at:]))
	alias, column, qualified := strings.Cut(found, ".")
	of := regexp.MustCompile(`\b(pg_\w+) ` + alias + `\b`).FindStringSubmatch(statement)
	switch {
	case found == "":
		return server.Message
	case qualified && of != nil:
		return of[1] + "." + column
	}
	return found
}

// unknownCatalogue returns what a newer server lacks of the catalogue that a stream needs, and what to do. An
// empty reason: nothing is lacking.
func (s *State) unknownCatalogue() (reason string, hints []string) {
	if len(s.Lacking) == 0 {
		return "", nil
	}
	return fmt.Sprintf("PostgreSQL %s is newer than %d, the newest that this outbox-cdc knows, and has no %s", s.Named(), Newest, strings.Join(s.Lacking, ", ")),
		[]string{"install a newer outbox-cdc, which knows that version; until then tables that keep a state are swept"}
}

// UntoldText returns a sentence about what a newer server does not reveal.
func (s *State) UntoldText() string {
	return fmt.Sprintf("PostgreSQL %s is newer than %d, the newest that this outbox-cdc knows, and does not tell %s", s.Named(), Newest, strings.Join(s.Untold, ", nor "))
}
