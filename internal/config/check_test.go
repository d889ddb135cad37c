package config

import (
	"fmt"
	"strings"
	"testing"
)

// What psql, Prisma or JDBC take in a connection string is named, before the server refuses it.
func TestParametersOfOtherClients(t *testing.T) {
	for parameter, want := range map[string]string{
		"keepalives=1": "keepalives of libpq", "gssencmode=disable": "gssencmode of libpq", "schema=public": "schema of Prisma", "connection_limit=5": "connection_limit of Prisma",
		"currentSchema=a": "currentSchema of JDBC", "keepalves=1": "did you mean keepalives?", "application_name=a": "", "tcp_user_timeout=1000": "", "search_path=a": "", "statement_timeout=5s": "",
	} {
		file := `{kafka: {clusters: {main: {brokers: ["localhost:9092"]}}}, streams: [{name: orders, postgres: {dsn: "postgres://u@localhost/db?` + parameter + `"}, tables: [{table: public.outbox, profile: native}]}]}`
		_, err := Parse([]byte(file), "outbox-cdc.yaml", ".")
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %q", parameter, err, want)
		}
	}
}
