// Package config reads one strict YAML file into plain typed structs, checked as a whole, with profiles
// resolved. It reads the file, environment variables, and files that the file names, and nothing else. It
// makes no connection, writes no log, and never prints a secret. cmd/outbox-cdc calls it and passes the
// structs to the packages that they configure.
//
// # Files
//
//	config, mapping, types      the keys: structs, whose comments become schema and reference
//	load, tree, bind, expand    file and variables into structs, each value with its position
//	problem                     a fault: where it is, what was found, what to write instead
//	check, check_*, share       rules over several keys
//	profile, resolve            a table's mapping: the profile filled in, then outbox.Mapping
//	coexistence                 the same for options next to another relay
//	delivery                    exactly-once delivery
//	credential                  secrets, read when they are needed
//	print, schema               the configuration in force; the JSON schema
package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Config is a whole configuration file, checked and resolved. The comments on its fields
// are also the descriptions in the JSON Schema.
type Config struct {
	// Kafka names the Kafka clusters that records go to.
	Kafka Kafka `yaml:"kafka" required:"true" example:"{clusters: {main: {brokers: [\"localhost:9092\"]}}}"`
	// Streams are the databases to stream from. The failure of one leaves the others running.
	Streams []*Stream `yaml:"streams" required:"true" example:"[{name: orders, postgres: {…}, tables: […]}]"`
	// HTTP serves metrics, health and status.
	HTTP HTTP `yaml:"http"`

	// File is the path the configuration was read from.
	File string `yaml:"-"`
	// Warnings say of files with secrets who else may read them.
	Warnings []string `yaml:"-"`

	credentials []Problem // see UnreadableSecrets
}

// Kafka names the Kafka clusters.
type Kafka struct {
	// Default is the cluster of every row that names none. Left out: the only one.
	Default string `yaml:"default"`
	// Clusters by name.
	Clusters map[string]*Cluster `yaml:"clusters" required:"true" example:"{main: {brokers: [\"localhost:9092\"]}}"`
}

// Cluster is one Kafka cluster and how to talk to it.
type Cluster struct {
	Name string `yaml:"-"`

	// Brokers are the bootstrap addresses, host:port.
	Brokers []string `yaml:"brokers" required:"true" example:"[\"kafka-1:9092\", \"kafka-2:9092\"]"`
	// ClientID is the name that the brokers see in their logs and quotas.
	ClientID string `yaml:"client_id" default:"outbox-cdc"`
	// TLS encrypts the connections; an empty map uses the system's certificates. Left out: no
	// TLS.
	TLS *TLS `yaml:"tls"`
	// SASL logs in to the brokers. Left out: no login.
	SASL *SASL `yaml:"sasl"`
	// AllowPlaintext lets sasl and its token_url go to other machines without TLS, where
	// others can read the password or token, and the records. Without sasl it is not needed.
	AllowPlaintext bool `yaml:"allow_plaintext" default:"false"`
	// Compression of record batches.
	Compression string `yaml:"compression" default:"none" enum:"none,gzip,snappy,lz4,zstd"`
	// MaxRequestBytes bounds one record batch, before compression. Lower limits of topic and
	// broker bound it too.
	MaxRequestBytes Bytes `yaml:"max_request_bytes" default:"1MB" min:"1KiB" max:"1GiB"`
	// RequestTimeout is how long the broker may take to acknowledge a request; at most 3 s
	// with shedlock, which is held no more than 10 s ahead.
	RequestTimeout time.Duration `yaml:"request_timeout" default:"10s" min:"100ms" max:"10m"`
	// DialTimeout is how long connecting to a broker may take, TLS and login included.
	DialTimeout time.Duration `yaml:"dial_timeout" default:"2s" min:"100ms" max:"10m"`
	// TransactionalIDPrefix begins the transactional.id that fences former leaders:
	// PREFIX-STREAM-CLUSTER. It must differ between installations that share a Kafka cluster
	// and have streams of the same name.
	TransactionalIDPrefix string `yaml:"transactional_id_prefix" default:"outbox-cdc"`
	// Fencing is what happens where brokers refuse the transactional id or have no
	// transactions. auto: go on without it; a leader that was cut off and comes back may add
	// duplicates. required: publish nothing. off: never use one.
	Fencing string `yaml:"fencing" default:"auto" enum:"auto,required,off"`
}

// The values of Cluster.Fencing that are not the default.
const (
	FencingRequired = "required"
	FencingOff      = "off"
)

// TLS is how connections to a Kafka cluster are encrypted.
type TLS struct {
	// CAFile has the certificates (PEM) that sign the brokers'. Left out: the system's. A
	// relative path starts at the configuration file's folder.
	CAFile Path `yaml:"ca_file"`
	// CertFile has this client's certificate (PEM), for mutual TLS. The files of tls are read for each
	// connection: after a change new connections have the new certificate, open ones keep the old one.
	CertFile Path `yaml:"cert_file"`
	// KeyFile has the private key (PEM) of cert_file.
	KeyFile Path `yaml:"key_file"`
	// ServerName is the name in the brokers' certificates, where it is not the host that is
	// dialled.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify accepts any certificate: others can read and change every record. For
	// tests only.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify" default:"false"`
}

// SASL is how this process logs in to a Kafka cluster.
type SASL struct {
	// Mechanism of the login.
	Mechanism string `yaml:"mechanism" required:"true" enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER,AWS_MSK_IAM"`
	// Username for PLAIN and SCRAM.
	Username string `yaml:"username"`
	// Password for PLAIN and SCRAM.
	Password *Credential `yaml:"password"`
	// Token for OAUTHBEARER that something else fetches, such as a mounted Kubernetes service
	// account token. Of the other keys only extensions goes with it.
	Token *Credential `yaml:"token"`
	// TokenURL issues tokens for OAUTHBEARER (OAuth 2.0 client credentials).
	TokenURL Address `yaml:"token_url"`
	// ClientID is for OAUTHBEARER.
	ClientID string `yaml:"client_id"`
	// ClientSecret is for OAUTHBEARER.
	ClientSecret *Credential `yaml:"client_secret"`
	// ClientAssertion is a JWT in place of client_secret (RFC 7523), such as {file: PATH} of a
	// token projected into the pod.
	ClientAssertion *Credential `yaml:"client_assertion"`
	// Scopes to ask for, for OAUTHBEARER.
	Scopes []string `yaml:"scopes"`
	// Extensions are sent with the token (KIP-342); Confluent Cloud wants logicalCluster and
	// identityPoolId.
	Extensions Extensions `yaml:"extensions"`
	// Region of AWS, for AWS_MSK_IAM. Credentials come from the environment, as the AWS tools
	// find them.
	Region string `yaml:"region"`
}

// Address is a URL whose parameters may be secrets, and are not shown.
type Address string

// MarshalYAML returns the URL without its parameters.
func (a Address) MarshalYAML() (any, error) {
	shown, parameters, _ := strings.Cut(string(a), "?")
	if parameters != "" {
		shown += "?" + redacted
	}
	return shown, nil
}

// Extensions are SASL extensions. A value may be a secret, and is not shown.
type Extensions map[string]string

// MarshalYAML returns the names without the values.
func (e Extensions) MarshalYAML() (any, error) {
	shown := map[string]string{}
	for name := range e {
		shown[name] = redacted
	}
	return shown, nil
}

// Stream is one database, its slot and its outbox tables.
type Stream struct {
	// Name in logs, metrics and the database. Renaming the stream forgets its parks and leader
	// epoch there.
	Name string `yaml:"name" required:"true" example:"orders"`
	// Postgres is the database.
	Postgres Postgres `yaml:"postgres" required:"true" example:"{dsn: \"postgres://cdc@db:5432/orders\"}"`
	// Slot is the logical replication slot: a-z, 0-9 and _, at most 63. Left out:
	// outbox_cdc_NAME, with _ for - in NAME.
	Slot string `yaml:"slot"`
	// Publication of the tables. Left out: named as the slot.
	Publication string `yaml:"publication"`
	// Mode shadow reads, maps and counts rows, but publishes and marks nothing, next to the
	// application's own relay. A later start with stream publishes what that relay left.
	Mode string `yaml:"mode" default:"stream" enum:"stream,shadow"`
	// Delivery exactly_once publishes rows in Kafka transactions (docs/exactly-once.md):
	// consumers with isolation.level=read_committed see each of them once. It takes fencing: required, and no other relay on the tables; these may keep no
	// state (published: none).
	Delivery string `yaml:"delivery" default:"at_least_once" enum:"at_least_once,exactly_once"`
	// Transaction bounds a transaction of delivery: exactly_once. It takes the rows that wait
	// when it begins.
	Transaction Transaction `yaml:"transaction"`
	// Journal is the topic in which delivery: exactly_once lists the published rows.
	Journal Journal `yaml:"journal"`
	// FailoverSlot makes the slot one that standbys keep (PostgreSQL 17 or later).
	FailoverSlot bool `yaml:"failover_slot" default:"false"`
	// Tables are the outbox tables of this database.
	Tables []*Table `yaml:"tables" required:"true" example:"[{table: public.outbox, profile: native}]"`

	// WALBudget is how much WAL the slot may hold back on the primary's disk. Above it the
	// slot moves on, and the sweeper publishes the rows that it passed over. A slot that others hold
	// does not move: see give_up_slot.
	WALBudget Bytes `yaml:"wal_budget" default:"8GiB" min:"64MiB"`
	// GiveUpSlot drops the slot when others make it hold back more than wal_budget: a transaction
	// that stays open in any database of the server, or a standby that the server waits for. The
	// table is swept, and the slot made again when the cause is over. Streams of tables without state
	// never give their slot up.
	GiveUpSlot bool `yaml:"give_up_slot" default:"true"`
	// Memory bounds the rows of a stream: read, queued, sent, and not yet marked. At the bound
	// reading waits.
	Memory Memory `yaml:"memory"`
	// Limits bound how fast rows are taken, so that a catch-up leaves the application its
	// share of the database.
	Limits Limits `yaml:"limits"`
	// Backoff is the wait before a failed row, topic or table is tried again: min, then twice
	// as long each time, up to max.
	Backoff Backoff `yaml:"backoff"`
	// WatchInterval is how often PENDING rows that the stream missed are looked for.
	WatchInterval time.Duration `yaml:"watch_interval" default:"10s" min:"100ms" max:"1h"`
	// Sweep is how rows are read from the table.
	Sweep Sweep `yaml:"sweep"`
	// Mark is how states are written back.
	Mark Mark `yaml:"mark"`
	// MaxParkedKeys is how many keys of a table may wait for a retry before the whole table is
	// left to the sweeper. Above ten times as many the table waits until some are
	// published or FAILED, and the next try of a row that cannot become a record is its last. Long keys count as several.
	MaxParkedKeys int `yaml:"max_parked_keys" default:"1000" min:"1" max:"1000000"`
	// MaxParkedTopics is how many unusable topics (missing, or not writable) are tried again one by one.
	// Rows of further such topics wait until the brokers list
	// their topics.
	MaxParkedTopics int `yaml:"max_parked_topics" default:"1000" min:"1" max:"10000"`
	// HeartbeatInterval is how often a commit is written to the WAL of an idle database, so
	// that its slot moves on.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval" default:"10s" min:"1s" max:"1h"`
	// DrainTimeout is how long a stop waits for what was sent to be acknowledged and marked.
	// The rest is published again later, unless delivery is exactly_once.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"30s" min:"0s" max:"1h"`
}

// Transaction bounds the Kafka transactions of delivery: exactly_once. A transaction
// takes the rows that wait when it begins; there is no delay to configure.
type Transaction struct {
	// MaxRows is how many rows one transaction has at most. Left out: a third of memory.rows:
	// one transaction is read, one sent, one marked.
	MaxRows int `yaml:"max_rows" min:"1" max:"1000000"`
	// Timeout is after how long brokers abort a transaction whose process does not end it.
	// Until then consumers see nothing behind it. It is longer than request_timeout, and at
	// most the brokers' transaction.max.timeout.ms.
	Timeout time.Duration `yaml:"timeout" default:"30s" min:"10s" max:"15m"`
}

// Journal is the topic in which delivery: exactly_once lists the published rows.
type Journal struct {
	// Topic of the journal on each cluster that rows may go to. It has one partition and
	// belongs to this stream alone; init --kafka makes it. Left out: __PREFIX-STREAM-journal,
	// with the cluster's transactional_id_prefix.
	Topic string `yaml:"topic"`
}

// Postgres is how to reach one database.
type Postgres struct {
	// DSN of the role that reads and marks rows, a URL or key=value pairs. It may lead to a
	// pooler.
	DSN Secret `yaml:"dsn" required:"true" example:"postgres://cdc@db:5432/orders?sslmode=verify-full"`
	// ReplicationDSN is the DSN of the role that streams (LOGIN REPLICATION), to the server
	// itself, or to PgBouncer 1.23 or later. Left out: dsn.
	ReplicationDSN Secret `yaml:"replication_dsn"`
	// Password of dsn's role, instead of one in dsn.
	Password *Credential `yaml:"password"`
	// ReplicationPassword is the password of replication_dsn's role.
	ReplicationPassword *Credential `yaml:"replication_password"`
	// AllowPlaintext lets a password go to another machine without TLS (sslmode left out,
	// disable, allow or prefer), where others can read it, and the rows.
	AllowPlaintext bool `yaml:"allow_plaintext" default:"false"`
	// WALSenderTimeout is how long the server waits for a silent leader before a standby may
	// take over.
	WALSenderTimeout time.Duration `yaml:"wal_sender_timeout" default:"4s" min:"1s" max:"1h"`

	// Host, Port, Database and User of DSN, for logs.
	Host     string `yaml:"-"`
	Port     uint16 `yaml:"-"`
	Database string `yaml:"-"`
	User     string `yaml:"-"`
}

// Memory bounds the rows of a stream in memory: read and queued, sent, and
// acknowledged but not yet marked. At the bound reading waits.
type Memory struct {
	// Rows in memory at which reading waits. One read brings two fifths as many at most.
	Rows int `yaml:"rows" default:"10000" min:"100" max:"10000000"`
	// Bytes of rows in memory at most. One row larger than this still passes, alone.
	Bytes Bytes `yaml:"bytes" default:"8MiB" min:"1MiB"`
}

// Limits bound how fast rows are taken from the WAL and from the table, so that a
// catch-up of millions of rows leaves the application its share of the database.
type Limits struct {
	// RowsPerSecond is how many rows a second are read at most; 0: no limit.
	RowsPerSecond int `yaml:"rows_per_second" default:"0" min:"0" max:"10000000"`
	// BackOff slows a catch-up down while a physical standby falls further behind, or sessions
	// wait for locks of the stream; never below 1,000 rows a second, or a tenth of
	// rows_per_second. Only members of pg_read_all_stats (pg_monitor) see how far standbys
	// are.
	BackOff bool `yaml:"back_off" default:"true"`
}

// Backoff is the wait between tries: min, then twice as long each time, up to max.
type Backoff struct {
	// Min is the first wait.
	Min time.Duration `yaml:"min" default:"1s" min:"10ms" max:"1h"`
	// Max is the longest wait.
	Max time.Duration `yaml:"max" default:"1m" min:"10ms" max:"24h"`
}

// Sweep is how rows are read from the table.
type Sweep struct {
	// PageRows is how many rows a statement reads at most; never more than a third of
	// memory.rows.
	PageRows int `yaml:"page_rows" default:"5000" min:"10" max:"100000"`
}

// Mark is how states are written back.
type Mark struct {
	// Connections is how many statements mark rows at the same time. Sweeps and lookups have others.
	Connections int `yaml:"connections" default:"3" min:"1" max:"100"`
	// BatchRows is how many rows one UPDATE marks at most; with `exactly_once`, one unit at least.
	BatchRows int `yaml:"batch_rows" default:"1000" min:"1" max:"100000"`
}

// HTTP serves /metrics, /healthz, /readyz, /api/v1/status and, with page, the operator's
// page.
type HTTP struct {
	// Listen is the address to serve on, host:port; off serves nothing.
	Listen string `yaml:"listen" default:"127.0.0.1:9187"`
	// TLS is the certificate to serve with; replaced files are read again. Left out: plain
	// HTTP.
	TLS *HTTPTLS `yaml:"tls"`
	// Auth is who may ask for what; /healthz and /readyz answer everybody. Left out: everybody
	// who reaches the address may read, nobody may change anything.
	Auth *HTTPAuth `yaml:"auth"`
	// AllowPlaintext lets credentials of auth go without tls over an address that is not
	// loopback, as behind a proxy that encrypts, or where the network does.
	AllowPlaintext bool `yaml:"allow_plaintext" default:"false"`
	// Hosts are further names, without port, by which clients without credentials may ask:
	// addresses, localhost and the machine's own name always may.
	Hosts []string `yaml:"hosts"`
	// Page serves the operator's page (docs/page.md): topics, keys, ids and errors of rows;
	// operators of auth also change rows, pause and resume. It takes auth where listen is not
	// loopback.
	Page bool `yaml:"page" default:"false"`
	// Dashboard is the address of a dashboard of your Prometheus, which the page links to for
	// times before the last hour.
	Dashboard string `yaml:"dashboard" example:"https://grafana.example/d/outbox-cdc"`
	// ShowPayloads lets the page show a row's payload.
	ShowPayloads bool `yaml:"show_payloads" default:"false"`
}

// HTTPTLS is the certificate that HTTP is served with. Files that are replaced
// are read again.
type HTTPTLS struct {
	// CertFile has the certificate (PEM), then the intermediate certificates.
	CertFile Path `yaml:"cert_file" required:"true" example:"cert.pem"`
	// KeyFile has its private key (PEM).
	KeyFile Path `yaml:"key_file" required:"true" example:"key.pem"`
}

// HTTPAuth is who may ask for anything but health.
type HTTPAuth struct {
	// Users are the credentials, each with a role of its own.
	Users []*HTTPUser `yaml:"users"`
	// Token is short for a user of the role viewer.
	Token *Credential `yaml:"token"`
	// Username is short for a user of the role operator, for basic authentication.
	Username string `yaml:"username"`
	// Password of username.
	Password *Credential `yaml:"password"`
}

// The roles of HTTP. Each role may do what the earlier ones may.
const (
	RoleMetrics  = "metrics"
	RoleViewer   = "viewer"
	RoleOperator = "operator"
)

// HTTPUser is one credential of HTTP: a token, or a name and a password.
type HTTPUser struct {
	// Role: metrics reads /metrics; viewer reads everything; operator also changes rows,
	// pauses and resumes, and has a name.
	Role string `yaml:"role" required:"true" enum:"metrics,viewer,operator"`
	// Username for basic authentication.
	Username string `yaml:"username"`
	// Password of username.
	Password *Credential `yaml:"password"`
	// Token is sent by clients as Authorization: Bearer TOKEN.
	Token *Credential `yaml:"token"`
}

// Everybody returns all users, including those given by the short keys of HTTPAuth.
func (a *HTTPAuth) Everybody() []*HTTPUser {
	all := slices.Clip(a.Users)
	if a.Token.Given() {
		all = append(all, &HTTPUser{Role: RoleViewer, Token: a.Token})
	}
	if a.Username != "" {
		all = append(all, &HTTPUser{Role: RoleOperator, Username: a.Username, Password: a.Password})
	}
	return all
}

// Table is one outbox table: its name, a profile or none, and any keys of the mapping.
type Table struct {
	// Table is the table's name, schema.name.
	Table string `yaml:"table" required:"true" example:"public.outbox"`
	// Profile is a ready-made mapping to start from.
	Profile string `yaml:"profile"`

	MappingSpec `yaml:",inline"`

	// MaxRowBytes is how long a row's mapped columns may be together. A longer row is not read
	// into memory: it is charged its attempts and becomes FAILED. Left out: four times the
	// largest max_request_bytes, at least 4MiB.
	MaxRowBytes Bytes `yaml:"max_row_bytes" min:"1MiB" max:"256MiB"`
	// Share takes one part of the rows, by a hash of the key's column, of one of PostgreSQL's
	// own types (without a key: of the first id column). Each part is a stream of its own; all
	// must be configured, with the same number of parts. It takes PostgreSQL 15.
	Share *Share `yaml:"share"`

	// Outbox is the table with its mapping resolved, made by Load. There is one
	// per table for the life of the process.
	Outbox *outbox.Table `yaml:"-"`
}

// Share is one part of a table's rows, by a hash of the key's column (without a
// key: of the first id column), whose type must be one of PostgreSQL's own. All
// rows of a key are of the same part. Each part is a stream of its own; all must
// be configured, with the same number of parts. PostgreSQL 15 or later.
type Share struct {
	// Part is which one, from 1.
	Part int `yaml:"part" required:"true" min:"1" max:"64" example:"1"`
	// Of is how many parts there are.
	Of int `yaml:"of" required:"true" min:"2" max:"64" example:"2"`
}

// OutboxTables returns the resolved tables of the stream.
func (s *Stream) OutboxTables() []*outbox.Table {
	tables := make([]*outbox.Table, len(s.Tables))
	for i, t := range s.Tables {
		tables[i] = t.Outbox
	}
	return tables
}

// Shadow reports whether the stream's mode is shadow.
func (s *Stream) Shadow() bool { return s.Mode == "shadow" }

// ReplicationLogin returns the password of the role that streams, for ReplicationSecret.
func (p *Postgres) ReplicationLogin() *Credential {
	if p.ReplicationDSN.Empty() {
		return p.Password
	}
	return p.ReplicationPassword
}

// ReplicationSecret returns the connection string of the role that streams.
func (p *Postgres) ReplicationSecret() Secret { return cmp.Or(p.ReplicationDSN, p.DSN) }
