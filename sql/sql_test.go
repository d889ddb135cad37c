package sql

import (
	"strings"
	"testing"
)

func TestBindQuotes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		statement string
		args      []any
		want      string
	}{
		{"SELECT $1, $2::bigint", []any{"it's", int64(-3)}, "SELECT 'it''s', (-3)::bigint"},
		{"SELECT $1", []any{`a\'b`}, `SELECT E'a\\''b'`},
		{"-- $1 is a name\nSELECT $1\n  -- of $2\nFROM t", []any{"a\nb"}, "SELECT 'a\nb'\nFROM t"},
		{"SELECT $2, $1, $2", []any{"$2", true}, "SELECT true, '$2', true"},
	} {
		got, err := Bind(c.statement, c.args...)
		if err != nil || got != c.want {
			t.Errorf("Bind(%q, %q) = %q, %v; want %q", c.statement, c.args, got, err, c.want)
		}
	}
}

func TestBindRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		statement string
		args      []any
	}{
		{"SELECT $1", nil},
		{"SELECT $0", []any{"a"}},
		{"SELECT $x", []any{"a"}},
		{"SELECT $1", []any{"a\x00b"}},
		{"SELECT $1", []any{1.5}},
	} {
		if got, err := Bind(c.statement, c.args...); err == nil {
			t.Errorf("Bind(%q, %q) = %q, want an error", c.statement, c.args, got)
		}
	}
}

func TestNativeTableIsNamed(t *testing.T) {
	t.Parallel()
	ddl := NativeTable("sales", `my "box"`)
	for _, want := range []string{
		`CREATE TABLE IF NOT EXISTS "sales"."my ""box""" (`,
		`CREATE INDEX IF NOT EXISTS "my ""box""_due" ON "sales"."my ""box""" (available_after, id)`,
		`CREATE INDEX IF NOT EXISTS "my ""box""_failed" ON "sales"."my ""box""" (id)`,
	} {
		if !strings.Contains(ddl, want) {
			t.Errorf("no %s in:\n%s", want, ddl)
		}
	}
}
