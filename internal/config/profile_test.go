package config

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Each profile fits the table that it is for, as a real server describes it.
func TestProfilesFitTheirTables(t *testing.T) {
	tables := map[string]string{
		"jeap": "public.deferred_message", "advert-market": "public.notification_outbox", "published-at": "public.outbox_events", "namastack": "public.outbox_record",
		"tomorrow-one": "public.outbox_kafka", "modulith": "public.event_publication", "open-outbox": "public.openoutbox_events", "outbox-messages-dotnet": "public.outbox_messages",
		"watermill-forwarder": "public.watermill_outbox", "cap": "public.published", "eventuate": "public.message",
	}
	for _, name := range ProfileNames() {
		t.Run(name, func(t *testing.T) {
			of := cmp.Or(tables[name], "public.outbox")
			cfg := load(t, oneTable+`{table: `+of+`, profile: `+name+openTopic(name)+`}`)
			table := cfg.Streams[0].Tables[0].Outbox
			db := harness.Postgres(t)
			db.Exec(t, ddl(t, name))
			columns := columnsOf(t, db, of)
			if _, err := mapping.Compile(nil, table, columns); err != nil {
				t.Error(err)
			}
			if err := mapping.Verify(table, columns); err != nil {
				t.Error(err)
			}
			statusIsAllowed(t, db, table)
		})
	}
}

// docs/configuration.md lists each profile.
func TestProfilesAreListed(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\nprofile | table\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, name := range ProfileNames() {
		if !strings.Contains(list, "`"+name+"`") {
			t.Errorf("the list lacks profile %s", name)
		}
	}
}

// The native table refuses a topic at the INSERT if, and only if, it could not be published.
func TestTopicsOfTheNativeTable(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, ddl(t, "native"))
	for _, topic := range []string{
		"orders", "A-Z_a.z-09", "...", "a", strings.Repeat("t", 249),
		"", ".", "..", strings.Repeat("t", 250), "two words", "line\n", "größe", "a/b", "^",
	} {
		_, err := harness.TryOne[int64](t.Context(), db, "INSERT INTO outbox (topic) VALUES ($1) RETURNING id", topic)
		var refused *pgconn.PgError
		if err != nil && (!errors.As(err, &refused) || refused.ConstraintName != "outbox_topic_check") {
			t.Fatal(err)
		}
		if taken, legal := err == nil, mapping.LegalTopic(topic); taken != legal {
			t.Errorf("%q: taken %t, legal %t", topic, taken, legal)
		}
	}
}

// The native table accepts the status that discarded rows get.
func TestTheNativeTableTakesArchivedRows(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, ddl(t, "native")+`; INSERT INTO outbox (topic, status) VALUES ('orders', 'FAILED')`)
	if n := harness.One[int64](t, db, "UPDATE outbox SET status = 'ARCHIVED' WHERE status = 'FAILED' RETURNING id"); n != 1 {
		t.Errorf("row %d", n)
	}
}

// openTopic gives the topic that some profiles leave open.
func openTopic(profile string) string {
	if profile == "modulith" || profile == "outbox-messages-dotnet" {
		return ", topic: {constant: orders}"
	}
	return ""
}

func ddl(t *testing.T, profile string) string {
	t.Helper()
	if profile == "native" {
		return sql.NativeTable("public", "outbox")
	}
	if known, err := os.ReadFile("../suggest/testdata/tables/" + profile + ".sql"); err == nil {
		return string(known)
	}
	ddl, _ := fixture.Original(profile)
	return ddl
}

func columnsOf(t *testing.T, db *harness.DB, table string) []mapping.Column {
	t.Helper()
	rows, err := db.Conn(t).Query(t.Context(), "SELECT attname, atttypid FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 ORDER BY attnum", table)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c mapping.Column, err error) {
		err = row.Scan(&c.Name, &c.OID)
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return columns
}

// statusIsAllowed checks the values against the table's own constraint.
func statusIsAllowed(t *testing.T, db *harness.DB, table *outbox.Table) {
	t.Helper()
	s := table.Mapping.Status
	if s.Column == "" {
		return
	}
	check := harness.One[string](t, db, "SELECT coalesce(string_agg(pg_get_constraintdef(oid), ' '), '') FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c' AND pg_get_constraintdef(oid) LIKE '%'||$2||'%'", table.String(), s.Pending[0])
	if check == "" {
		return
	}
	for _, value := range append([]string{s.Sent, s.Failed}, s.Pending...) {
		if !strings.Contains(check, "'"+value+"'") {
			t.Errorf("status %s is not in %s", value, check)
		}
	}
}
