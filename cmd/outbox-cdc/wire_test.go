package main

import (
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// Every sink knows the journals of all streams on its brokers, whatever a cluster is called.
func TestSinksKnowTheJournals(t *testing.T) {
	cfg, err := config.Parse([]byte(`
kafka:
  default: a
  clusters:
    a: {brokers: ["k:9092"], fencing: required, transactional_id_prefix: p}
    b: {brokers: ["l:9092", "k:9092"], fencing: required}
    c: {brokers: ["m:9092"]}
streams:
  - {name: once, delivery: exactly_once, journal: {topic: events}, postgres: {dsn: "postgres://db/a"}, tables: [{table: public.a, profile: native, cluster: {default: a}}]}
  - {name: two, delivery: exactly_once, postgres: {dsn: "postgres://db/b"}, tables: [{table: public.b, profile: native, cluster: {default: a}}]}
  - {name: least, postgres: {dsn: "postgres://db/c"}, tables: [{table: public.c, profile: native, cluster: {default: b}}, {table: public.d, profile: native, cluster: {default: c}}]}
`), "test.yaml", ".")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, s := range cfg.Streams {
		for _, name := range []string{"a", "b", "c"} {
			if c, uses := sinkConfigs(cfg, s, zerolog.Nop())[name]; uses {
				got += fmt.Sprint(s.Name, " ", name, " ", c.Journals, "\n")
			}
		}
	}
	const want = "once a [__p-two-journal events]\ntwo a [__p-two-journal events]\nleast b [__p-two-journal events]\nleast c []\n"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
