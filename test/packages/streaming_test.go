package packages

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

const patience = 2 * time.Minute

// surroundings are servers to stream between.
type surroundings struct {
	t     *testing.T
	db    *harness.DB
	kafka *harness.Cluster
	port  int // for http
	rows  int // inserted so far
}

func newSurroundings(t *testing.T) *surroundings {
	t.Helper()
	port, err := localpg.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := &surroundings{t: t, db: harness.Postgres(t), kafka: harness.Kfake(t), port: port}
	s.kafka.CreateTopic(t, "orders", 3, nil)
	return s
}

func (s *surroundings) dsn() *url.URL {
	s.t.Helper()
	dsn, err := url.Parse(s.db.DSN)
	if err != nil {
		s.t.Fatal(err)
	}
	return dsn
}

func (s *surroundings) password() string {
	password, _ := s.dsn().User.Password()
	return password
}

// dsnWith has another password, such as a reference to a variable.
func (s *surroundings) dsnWith(password string) string {
	dsn := s.dsn()
	dsn.User = url.User(dsn.User.Username())
	return strings.Replace(dsn.String(), "@", ":"+password+"@", 1)
}

var (
	anyBroker = regexp.MustCompile(`"(kafka|localhost):9092"`)
	anyDSN    = regexp.MustCompile(`"postgres://[^"]*"`)
	anyHTTP   = regexp.MustCompile(`(?m)^http:.*\n`)
)

// configure copies a configuration with these servers in the place of its own.
func (s *surroundings) configure(from, to string) {
	s.t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		s.t.Fatal(err)
	}
	config := anyBroker.ReplaceAllLiteralString(string(text), `"`+s.kafka.Addrs[0]+`"`)
	config = anyDSN.ReplaceAllLiteralString(config, `"`+s.dsnWith("${env:POSTGRES_PASSWORD}")+`"`)
	config = anyHTTP.ReplaceAllLiteralString(config, "") + fmt.Sprintf("http: {listen: \"127.0.0.1:%d\"}\n", s.port)
	if err := os.WriteFile(to, []byte(config), 0o644); err != nil { // the image has another user; the password is not in it
		s.t.Fatal(err)
	}
}

// start runs the program until it streams.
func (s *surroundings) start(cmd *exec.Cmd) *harness.Process {
	s.t.Helper()
	p := harness.Start(s.t, cmd)
	p.Await(patience, "streaming")
	return p
}

// streams waits until the rows inserted so far are in Kafka, once each, and SENT.
func (s *surroundings) streams() {
	s.t.Helper()
	s.kafka.AwaitRecords(s.t, "orders", s.rows, patience)
	harness.Eventually(s.t, patience, func() error {
		sent, err := harness.TryOne[int](s.t.Context(), s.db, `SELECT count(*)::int FROM outbox WHERE status = 'SENT'`)
		if err == nil && sent != s.rows {
			err = fmt.Errorf("%d of %d rows are SENT", sent, s.rows)
		}
		return err
	})
	if n := s.kafka.Count(s.t, "orders"); n != s.rows {
		s.t.Errorf("%d records of %d rows", n, s.rows)
	}
}

// inserts one more row, which has to come out.
func (s *surroundings) inserts() {
	s.t.Helper()
	s.db.Exec(s.t, `INSERT INTO outbox (topic, key, payload) VALUES ('orders', '42', '{}')`)
	s.rows++
	s.streams()
}
