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
    postgres: {dsn: "postgres://cdc:hunter2@db/orders?sslmode=verify-full", replication_dsn: "postgres://r:hunter2@db/orders?sslmode=verify-full"}
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
	if strings.Contains(text, "hunter2") {
		t.Error(text)
	}
	for _, want := range []string{"name: orders", "wal_budget: 8GiB", "drain_timeout: 30s", "profile: native", "k:9092"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestWhereSecretsAreIsPrinted(t *testing.T) {
	c, err := Parse([]byte(`
kafka: {clusters: {main: {brokers: ["localhost:9092"], sasl: {mechanism: PLAIN, username: u, password: {command: [get, hunter2], cache: 5m}}}}}
streams:
  - name: orders
    postgres: {dsn: "postgres://cdc@localhost/orders", password: {file: db-password}}
    tables: [{table: public.outbox, profile: native}]
`), "x.yaml", "/etc/outbox-cdc")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.InForce(c.Streams[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"file: /etc/outbox-cdc/db-password", "command: get", "cache: 5m0s"} {
		if !strings.Contains(text, want) || strings.Contains(text, "hunter2") {
			t.Errorf("no %q, or a secret, in\n%s", want, text)
		}
	}
}

// Texts that may hold a secret are not printed: parameters of an address, values of extensions.
func TestWhatMayBeASecretIsNotPrinted(t *testing.T) {
	c, err := Parse([]byte(`
kafka:
  clusters:
    main:
      brokers: ["k:9092"]
      tls: {}
      sasl: {mechanism: OAUTHBEARER, client_id: c, client_secret: hunter2, token_url: "https://login/token?key=hunter2", extensions: {logicalCluster: hunter2}}
streams:
  - name: orders
    postgres: {dsn: "postgres://cdc@localhost/orders"}
    tables: [{table: public.outbox, profile: native}]
`), "x.yaml", ".")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.InForce(c.Streams[0])
	if err != nil || strings.Contains(text, "hunter2") || !strings.Contains(text, "logicalCluster: ") || !strings.Contains(text, "https://login/token?") {
		t.Error(text, err)
	}
	if got := c.Kafka.Clusters["main"].SASL; got.Extensions["logicalCluster"] != "hunter2" || got.TokenURL != "https://login/token?key=hunter2" {
		t.Errorf("%+v", got)
	}
}

// Secrets of a connection string are found in every spelling.
func TestSecretsOfConnectionStrings(t *testing.T) {
	for dsn, want := range map[string]bool{
		"postgres://u:p@h/db": true, "postgres://u@h/db": false, "postgres://u@h/db?password=p": true, "postgres://u@h/db?sslmode=require&sslpassword=p": true,
		"host=h password=p": true, "host=h  password = 'p q'": true, "password='p\\'q' host=h": true, "host=h dbname=d": false, "host=h application_name=nopassword": false,
	} {
		if got := inDSN(Secret{dsn}); got != want {
			t.Errorf("%s: %v", dsn, got)
		}
	}
	for dsn, want := range map[string]string{"postgres://u@h/db?sslkey=/a%20b": "/a b", "host=h sslkey = '/a b'": "/a b", "sslkey=/a host=h": "/a", "host=h": ""} {
		if got := dsnParameter(Secret{dsn}, "sslkey"); got != want {
			t.Errorf("%s: %q", dsn, got)
		}
	}
}

// The hash tells of different configurations, and nothing of secrets.
func TestHash(t *testing.T) {
	hash := func(password, host, rows string) string {
		c, err := Parse([]byte(`
kafka: {clusters: {a: {brokers: ["localhost:9092"], sasl: {mechanism: PLAIN, username: u, password: `+password+`}}, b: {brokers: ["localhost:1"]}}, default: a}
streams:
  - name: orders
    postgres: {dsn: "postgres://cdc:`+password+`@`+host+`/orders"}
    memory: {rows: `+rows+`}
    tables: [{table: public.outbox, profile: native}]
http: {auth: {token: `+password+`}}
`), "x.yaml", ".")
		if err != nil {
			t.Fatal(err)
		}
		return c.Hash()
	}
	first := hash("a", "localhost", "1000")
	if len(first) != 12 || first != hash("a", "localhost", "1000") || first != hash("hunter2", "localhost", "1000") {
		t.Error("the hash is not of what is no secret alone")
	}
	if first == hash("a", "127.0.0.1", "1000") || first == hash("a", "localhost", "1001") {
		t.Error("the hash does not tell of a difference")
	}
}
