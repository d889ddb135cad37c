package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/secret"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

// This file keeps secrets off unencrypted connections, and warns of files with secrets that others can read.

// checkPassword reports a password that could be sent unencrypted. prefix is the prefix of the keys: "" or
// "replication_".
func checkPassword(b *binder, p *Postgres, dsn Secret, c *pgconn.Config, given *Credential, at, prefix string) {
	if given.Given() && inDSN(dsn) {
		b.complain(at+"."+prefix+"password", "cannot be combined with a password in "+prefix+"dsn", "keep one of them")
	}
	safety, host := transport.Postgres(c)
	if c.Password == "" && !given.Given() || safety != transport.Open || p.AllowPlaintext {
		return
	}
	b.complain(at+"."+prefix+"dsn", fmt.Sprintf("its password could go to %s in plain text: the sslmode allows that, as the default (prefer) does", host),
		"add sslmode=verify-full (and sslrootcert=FILE for an authority of your own); or write allow_plaintext: true next to it")
}

// inDSN reports whether the connection string itself has a password.
func inDSN(dsn Secret) bool {
	if u, err := url.Parse(dsn.Reveal()); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			return true
		}
	}
	return dsnParameter(dsn, "password") != "" || dsnParameter(dsn, "sslpassword") != ""
}

// dsnParameter returns a parameter of a connection string (a URL, or key=value pairs), or "".
func dsnParameter(dsn Secret, name string) string {
	text := dsn.Reveal()
	if u, err := url.Parse(text); err == nil && u.Scheme != "" {
		return u.Query().Get(name)
	}
	found := regexp.MustCompile(`(?:^|\s)` + name + `\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1] + found[2]
}

func checkKafkaPlaintext(b *binder, c *Cluster, at string) {
	if c.AllowPlaintext {
		return
	}
	const hint = "; or write allow_plaintext: true for this cluster"
	if u, err := url.Parse(string(c.SASL.TokenURL)); err == nil && u.Scheme == "http" && !transport.Loopback(u.Hostname()) {
		b.complain(at+".sasl.token_url", fmt.Sprintf("the client's secret would go to %s in plain text", u.Host), "write https://"+hint)
	}
	if c.TLS != nil {
		return
	}
	for _, broker := range c.Brokers {
		if isAddress(broker, false) && !transport.LoopbackAddress(broker) {
			b.complain(at+".sasl", fmt.Sprintf("the login of %s would go to %s without TLS", c.SASL.Mechanism, broker), "write tls: {} (with ca_file: for an authority of your own), and the port of the listener with TLS"+hint)
			return
		}
	}
}

// exposedSecrets returns warnings about files with secrets that others can read.
func (b *binder) exposedSecrets(cfg *Config) []string {
	files := slices.Clone(b.secretFiles)
	for _, c := range cfg.Kafka.Clusters {
		if c.TLS != nil {
			files = append(files, string(c.TLS.KeyFile))
		}
	}
	for _, s := range cfg.Streams {
		for _, dsn := range []Secret{s.Postgres.DSN, s.Postgres.ReplicationDSN} {
			files = append(files, dsnParameter(dsn, "sslkey"), dsnParameter(dsn, "passfile"))
		}
	}
	if cfg.HTTP.TLS != nil {
		files = append(files, string(cfg.HTTP.TLS.KeyFile))
	}
	if b.hasInline(cfg) {
		files = append(files, b.around.absolute(filepath.Base(b.file)))
	}
	slices.Sort(files)
	var found []string
	for _, name := range slices.Compact(files) {
		if words := secret.Exposed(name); words != "" {
			found = append(found, words)
		}
	}
	return found
}

// hasInline reports whether the configuration file itself contains a secret.
func (b *binder) hasInline(cfg *Config) bool {
	for path := range b.literal {
		if !strings.HasSuffix(path, "dsn") {
			return true
		}
	}
	for i, s := range cfg.Streams {
		at := fmt.Sprintf("streams[%d].postgres.", i)
		if b.literal[at+"dsn"] && inDSN(s.Postgres.DSN) || b.literal[at+"replication_dsn"] && inDSN(s.Postgres.ReplicationDSN) {
			return true
		}
	}
	return false
}
