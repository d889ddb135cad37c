package config

import (
	"strings"
	"testing"
)

func TestInForceHasNoSecrets(t *testing.T) {
	c, err := Parse([]byte(`
kafka:
  clusters:
    main: {brokers: ["k:9092"], tls: {}, sasl: {mechanism: PLAIN, username: u, password: hunter2}}
streams:
  - name: orders
    postgres: {dsn: "postgres://cdc:hunter2@db/orders", replication_dsn: "postgres://r:hunter2@db/orders"}
    tables: [{table: public.outbox, profile: native}]
http: {auth: {token: hunter2}}
`), "x.yaml", ".")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.InForce(c.Streams[0])
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "hunter2") || strings.Contains(text, "password") {
		t.Error(text)
	}
	for _, want := range []string{"name: orders", "wal_budget: 8GiB", "drain_timeout: 30s", "profile: native", "k:9092"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
