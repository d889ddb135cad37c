package config

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

// The rules in this file depend on several values, or on the purpose of a value. They run after the whole
// file has been read, and go on after a fault. Values that have a problem already are skipped.

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	slotPattern = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
)

func check(b *binder, cfg *Config) {
	checkKafka(b, &cfg.Kafka)
	checkHTTP(b, &cfg.HTTP)
	seen := duplicates{b: b, first: map[string]string{}, splits: map[string]string{}}
	for i, s := range cfg.Streams {
		if s != nil {
			checkStream(b, cfg, s, fmt.Sprintf("streams[%d]", i), &seen)
		}
	}
}

// duplicates finds things that may occur only once.
type duplicates struct {
	b     *binder
	first map[string]string // path of the first occurrence, by what it is
	// splits says how tables that several streams share are split.
	splits map[string]string
}

func (d *duplicates) add(what, at, found, hint string) {
	if earlier, ok := d.first[what]; ok {
		line := d.b.find(earlier).line
		d.b.complain(at, fmt.Sprintf("%s is already that of %s (line %d)", found, earlier, line), hint)
		return
	}
	d.first[what] = at
}

// ---- Kafka and HTTP ----

func checkKafka(b *binder, k *Kafka) {
	names := clusterNames(k)
	for _, name := range names {
		if c := k.Clusters[name]; c != nil {
			c.Name = name
			at := join("kafka.clusters", name)
			checkName(b, at, name)
			checkCluster(b, c, at)
		}
	}
	switch {
	case len(names) == 0:
	case k.Default == "" && len(names) == 1:
		k.Default = names[0]
	case k.Default == "" && !b.hasProblem("kafka.default"):
		b.complain("kafka.default", "is missing", "write which of "+strings.Join(names, ", ")+" is the default")
	case k.Default != "":
		checkClusterName(b, "kafka.default", k.Default, names)
	}
}

func clusterNames(k *Kafka) []string { return slices.Sorted(maps.Keys(k.Clusters)) }

func checkClusterName(b *binder, at, name string, known []string) {
	if !slices.Contains(known, name) {
		b.complain(at, fmt.Sprintf("unknown cluster %q", name), meant(name, known))
	}
}

func checkName(b *binder, at, name string) {
	if !namePattern.MatchString(name) {
		b.complain(at, fmt.Sprintf("%q is not a name", name), "write 1 to 63 letters, digits, dots, - or _, beginning with a letter or digit")
	}
}

func checkCluster(b *binder, c *Cluster, at string) {
	for i, broker := range c.Brokers {
		path := fmt.Sprintf("%s.brokers[%d]", at, i)
		if !b.hasProblem(path) && !isAddress(broker, false) {
			b.complain(path, fmt.Sprintf("%q is not an address", broker), "write host:port, for example kafka-1:9092")
		}
	}
	if c.TLS != nil {
		checkFile(b, at+".tls.ca_file", c.TLS.CAFile)
		checkFile(b, at+".tls.cert_file", c.TLS.CertFile)
		checkFile(b, at+".tls.key_file", c.TLS.KeyFile)
		if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
			b.complain(at+".tls", "one of cert_file and key_file alone", "write both for mutual TLS, or neither")
		}
	}
	if c.SASL != nil {
		checkSASL(b, c.SASL, at+".sasl")
		checkKafkaPlaintext(b, c, at)
	}
}

func isAddress(text string, hostOptional bool) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" && !hostOptional {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535 && (n > 0 || hostOptional)
}

// saslKeys lists, for each mechanism, the keys that it needs and those that it may have. For OAUTHBEARER
// these depend on the way in which the token is obtained, and the keys that are given decide the way.
var saslKeys = map[string]struct{ need, may []string }{
	transport.SASLPlain:       {need: []string{"username", "password"}},
	transport.SASLScramSHA256: {need: []string{"username", "password"}},
	transport.SASLScramSHA512: {need: []string{"username", "password"}},
	transport.SASLOAuthBearer: {need: []string{"token_url", "client_id", "client_secret"}, may: []string{"scopes", "extensions"}},
	saslWithToken:             {need: []string{"token"}, may: []string{"extensions"}},
	saslWithJWT:               {need: []string{"token_url", "client_id", "client_assertion"}, may: []string{"scopes", "extensions"}},
	transport.SASLAWSMSKIAM:   {need: []string{"region"}},
}

const (
	saslWithToken = transport.SASLOAuthBearer + " with token"
	saslWithJWT   = transport.SASLOAuthBearer + " with client_assertion"
)

func checkSASL(b *binder, s *SASL, at string) {
	way := s.Mechanism
	switch {
	case way == transport.SASLOAuthBearer && s.Token.Given():
		way = saslWithToken
	case way == transport.SASLOAuthBearer && s.ClientAssertion.Given():
		way = saslWithJWT
	}
	rule, ok := saslKeys[way]
	if !ok {
		return // reported as an unknown word already
	}
	given := map[string]bool{
		"username": s.Username != "", "password": s.Password.Given(), "token_url": s.TokenURL != "",
		"client_id": s.ClientID != "", "client_secret": s.ClientSecret.Given(),
		"token": s.Token.Given(), "client_assertion": s.ClientAssertion.Given(), "scopes": len(s.Scopes) > 0, "extensions": len(s.Extensions) > 0, "region": s.Region != "",
	}
	for _, key := range keysOf(reflect.TypeFor[SASL]()) {
		path := at + "." + key
		needed := slices.Contains(rule.need, key)
		switch {
		case key == "mechanism" || b.hasProblem(path):
		case needed && !given[key]:
			b.complain(path, "is missing", way+" needs "+strings.Join(rule.need, ", "))
		case given[key] && !needed && !slices.Contains(rule.may, key):
			b.complain(path, "is not used by "+way, "remove it, or choose the mechanism that needs it")
		}
	}
	u, err := url.Parse(string(s.TokenURL))
	switch {
	case s.TokenURL == "":
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		b.complain(at+".token_url", "is not an address", "write it like https://login.example.com/oauth2/token")
	case u.User != nil:
		b.complain(at+".token_url", "has a user or a password", "write the address alone, and client_id and client_secret next to it")
	}
}

// checkFile reports a file that cannot be found.
func checkFile(b *binder, at string, path Path) {
	if path == "" || b.hasProblem(at) {
		return
	}
	if _, err := os.Stat(string(path)); err != nil {
		b.complain(at, fmt.Sprintf("%q: %s", path, reason(err)), "write the path of a PEM file, absolute or from the configuration file's folder")
	}
}

// ---- streams ----

func checkStream(b *binder, cfg *Config, s *Stream, at string, seen *duplicates) {
	if s.Name != "" {
		checkName(b, at+".name", s.Name)
		seen.add("stream "+s.Name, at+".name", fmt.Sprintf("the name %q", s.Name), "give each stream its own")
	}
	server := checkPostgres(b, &s.Postgres, at+".postgres")
	checkSlot(b, s, at, server, seen)
	if s.Backoff.Max < s.Backoff.Min && !b.hasProblem(at+".backoff") {
		b.complain(at+".backoff", fmt.Sprintf("max %s is less than min %s", s.Backoff.Max, s.Backoff.Min), "make max the longer one")
	}
	for i, t := range s.Tables {
		if t == nil {
			continue
		}
		path := fmt.Sprintf("%s.tables[%d]", at, i)
		checkTable(b, cfg, t, path)
		if t.Outbox != nil && server != "" {
			seen.addTable(s, t, server, path)
		}
	}
	checkArchives(b, s, at)
	checkStateless(b, s, at)
	checkDelivery(b, cfg, s, at, seen)
}

// checkArchives reports archives that are outbox tables too: a published row that is moved there would be
// published again.
func checkArchives(b *binder, s *Stream, at string) {
	streamed := map[string]bool{}
	for _, t := range s.resolved(at) {
		streamed[t.String()] = true
	}
	for path, t := range s.resolved(at) {
		if name := t.Mapping.Archive.String(); t.Mapping.Archive.Name != "" && streamed[name] {
			b.complain(path+".archive", "the table "+name+" is streamed, too", "name a table that is no outbox: rows that are moved there were published")
		}
	}
}

// resolved iterates over the tables whose mapping could be resolved, with their paths.
func (s *Stream) resolved(at string) iter.Seq2[string, *outbox.Table] {
	return func(yield func(string, *outbox.Table) bool) {
		for i, t := range s.Tables {
			if t != nil && t.Outbox != nil && !yield(fmt.Sprintf("%s.tables[%d]", at, i), t.Outbox) {
				return
			}
		}
	}
}

// checkSlot fills in and checks the names of slot and publication. A slot's name is unique in the whole
// server, not only in a database.
func checkSlot(b *binder, s *Stream, at, server string, seen *duplicates) {
	derived := s.Slot == ""
	if derived && s.Name != "" {
		s.Slot = "outbox_cdc_" + strings.ReplaceAll(strings.ToLower(s.Name), "-", "_")
		if !slotPattern.MatchString(s.Slot) {
			if !b.hasProblem(at + ".name") { // otherwise it is reported already
				b.complain(at+".slot", "is missing, and none can be made of the stream's name", "write a slot name: 1 to 63 of a-z, 0-9 and _")
			}
			return
		}
	}
	s.Publication = cmp.Or(s.Publication, s.Slot)
	if !slotPattern.MatchString(s.Slot) {
		if s.Slot != "" {
			b.complain(at+".slot", fmt.Sprintf("%q is not a slot name", s.Slot), "write 1 to 63 of a-z, 0-9 and _, for example outbox_cdc_orders")
		}
		return
	}
	if !isIdentifier(s.Publication) {
		b.complain(at+".publication", fmt.Sprintf("%q is not a publication name", s.Publication), "write 1 to 63 characters, for example outbox_cdc_orders")
	}
	if server != "" && !(derived && b.hasProblem(at+".name")) { // an invalid stream name is the cause, and is reported already
		seen.add("slot "+server+" "+s.Slot, at+".slot", "the slot "+s.Slot+" on "+server, "give each stream its own: a slot has one reader")
	}
}

// checkPostgres parses the connection strings and returns the server as host:port.
func checkPostgres(b *binder, p *Postgres, at string) string {
	server := ""
	if c := parseDSN(b, p.DSN, at+".dsn"); c != nil {
		checkPassword(b, p, p.DSN, c, p.Password, at, "")
		p.Host, p.Port, p.Database, p.User = c.Host, c.Port, c.Database, c.User
		server = net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	}
	if p.ReplicationDSN.Empty() {
		if p.ReplicationPassword.Given() {
			b.complain(at+".replication_password", "is for replication_dsn, which is not there", "write replication_dsn, or remove it")
		}
		return server
	}
	c := parseDSN(b, p.ReplicationDSN, at+".replication_dsn")
	if c == nil {
		return server
	}
	checkPassword(b, p, p.ReplicationDSN, c, p.ReplicationPassword, at, "replication_")
	if p.Database != "" && c.Database != p.Database {
		b.complain(at+".replication_dsn", fmt.Sprintf("is for the database %q, dsn for %q", c.Database, p.Database), "name the same database in both")
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// dsnParameters are the parameters of connection strings, followed by the server settings that they usually
// have. Any other parameter is sent to the server as a setting. If the server does not know its name, it
// refuses every connection. https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
var dsnParameters = []string{
	"host", "hostaddr", "port", "user", "password", "passfile", "dbname", "database", "service", "servicefile", "connect_timeout",
	"sslmode", "sslcert", "sslkey", "sslrootcert", "sslpassword", "sslsni", "sslnegotiation", "sslcrl", "ssl_min_protocol_version",
	"ssl_max_protocol_version", "channel_binding", "require_auth", "krbsrvname", "krbspn", "target_session_attrs", "load_balance_hosts",
	"application_name", "fallback_application_name", "client_encoding", "options", "replication", "gssencmode",
	"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
	"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity", "pool_max_conns", "pool_min_conns",
	"search_path", "timezone", "statement_timeout", "lock_timeout", "work_mem", "role", "geqo", "jit", "datestyle",
}

// mistyped returns the parameter that was probably meant, if one or two letters are wrong; otherwise "".
func mistyped(name string) string {
	if len(name) < 5 || slices.Contains(dsnParameters, strings.ToLower(name)) {
		return ""
	}
	return outbox.Nearest(name, dsnParameters, 2)
}

// otherClients are parameters that only other clients know. Our driver would send them to the server as
// settings, and the server would refuse every connection.
var otherClients = map[string][]string{
	"libpq": {
		"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "gssencmode", "gssdelegation", "gsslib", "hostaddr", "requirepeer",
		"load_balance_hosts", "sslcompression", "sslcrl", "sslcrldir", "ssl_min_protocol_version", "ssl_max_protocol_version", "fallback_application_name",
	},
	"Prisma": {"schema", "connection_limit", "pool_timeout", "socket_timeout", "pgbouncer", "statement_cache_size", "sslaccept", "sslidentity"},
	"JDBC":   {"currentschema", "applicationname", "ssl", "sslfactory", "preparethreshold", "rewritebatchedinserts", "stringtype", "sockettimeout", "logintimeout"},
}

// clientOf returns the client that the parameter belongs to, or "".
func clientOf(parameter string) string {
	for client, all := range otherClients {
		if slices.Contains(all, strings.ToLower(parameter)) {
			return client
		}
	}
	return ""
}

// anyScheme matches the beginning of a URL, for example that of another driver.
var anyScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.:-]*://`)

// parseDSN parses a connection string. Its messages do not quote the parser's, which may repeat a part of the
// password: if the password has a /, a part of it is taken for the port, for example.
func parseDSN(b *binder, dsn Secret, at string) *pgconn.Config {
	if dsn.Empty() || b.hasProblem(at) {
		return nil
	}
	if scheme := anyScheme.FindString(dsn.Reveal()); scheme != "" && scheme != "postgres://" && scheme != "postgresql://" {
		b.complain(at, "does not begin with postgres://", "write it like postgres://user:password@host:5432/database?sslmode=verify-full")
		return nil
	}
	c, err := postgres.Parse(dsn.Reveal())
	if err != nil {
		found, hint := "is not a connection string", "write it like postgres://user:password@host:5432/database?sslmode=verify-full, with special characters of the password percent-encoded (/ is %2F, @ is %40)"
		_, cause, _ := strings.Cut(err.Error(), "`: ") // the text after the quoted string, which may itself mention sslmode
		for _, word := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs", "connect_timeout"} {
			if strings.Contains(cause, word) {
				found = "its " + word + " cannot be used"
			}
		}
		switch {
		case strings.Contains(cause, "sslmode"):
			hint = "write one of disable, allow, prefer, require, verify-ca, verify-full"
		case strings.Contains(cause, `extra key/value separator "="`):
			found, hint = "has a second = in a parameter", "percent-encode it (= is %3D)"
		}
		if strings.Contains(cause, "unable to read CA file") || strings.Contains(cause, "unable to add CA") {
			found, hint = "its sslrootcert cannot be read, or has no certificate", "name a PEM file that this user may read"
		}
		b.complain(at, found, hint)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.RuntimeParams)) {
		if client := clientOf(name); client != "" {
			b.complain(at, "has the parameter "+name+" of "+client+", for which PostgreSQL would refuse every connection", "take it out of the connection string")
			return nil
		}
		if meant := mistyped(name); meant != "" {
			b.complain(at, "has the parameter "+name+", which PostgreSQL does not know", "did you mean "+meant+"?")
			return nil
		}
	}
	if hosts := append([]*pgconn.FallbackConfig{{Host: c.Host}}, c.Fallbacks...); slices.ContainsFunc(hosts, func(f *pgconn.FallbackConfig) bool {
		return !strings.HasPrefix(f.Host, "/") && strings.ContainsAny(f.Host, "@?#%")
	}) {
		b.complain(at, "has no host, but part of a password, where the host is to be", "percent-encode special characters of the password (/ is %2F, @ is %40)")
		return nil
	}
	if c.Database == "" {
		b.complain(at, "names no database", "add it, as in postgres://user@host:5432/database")
		return nil
	}
	return c
}

// checkStateless reports streams that mix tables with and without state. A stream without state may have to
// wait, and must not make other tables wait with it.
func checkStateless(b *binder, s *Stream, at string) {
	var stateful *outbox.Table
	stateless := "" // path of a table without state
	for path, t := range s.resolved(at) {
		if t.Stateful() {
			stateful = t
		} else {
			stateless = path
		}
	}
	if stateless != "" && stateful != nil {
		b.complain(stateless, fmt.Sprintf("published: none cannot be combined with %s, which keeps a status", stateful),
			"give tables without stored state a stream and a slot of their own")
	}
}
