package takeover

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Tables that resemble no others go from mapping suggest to records: what it
// proposes is pasted below tables, once its questions are answered.
func TestStrangersTables(t *testing.T) {
	t.Parallel()
	kafka := broker(t)
	files, err := filepath.Glob("../../internal/suggest/testdata/tables/stranger-*.sql")
	if err != nil || len(files) < 5 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".sql"), func(t *testing.T) {
			t.Parallel()
			ddl, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &stranger{t: t, db: harness.Postgres(t), kafka: kafka, topic: kafka.Topic(t, 1), dir: t.TempDir()}
			s.db.Exec(t, string(ddl))
			s.streams(named.FindStringSubmatch(string(ddl))[1])
		})
	}
}

var named = regexp.MustCompile(`CREATE TABLE ("?\w+"?)`)

// stranger is somebody with a table.
type stranger struct {
	t          *testing.T
	db         *harness.DB
	kafka      *harness.Cluster
	topic, dir string
}

func (s *stranger) command(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(harness.Binary(s.t), args...)
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

var asked = regexp.MustCompile(`("QUESTION: .*"|'QUESTION: .*')`)

// answered takes the only candidate of each question; the keys of others are left out.
func answered(proposed string) string {
	var lines []string
	for line := range strings.Lines(proposed) {
		if question := asked.FindString(line); question != "" {
			_, candidate, only := strings.Cut(question[1:len(question)-1], "Candidate: ")
			if !only {
				continue
			}
			line = strings.Replace(line, question, candidate, 1)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// streams goes the way of the README, and waits for the first record.
func (s *stranger) streams(table string) {
	s.t.Helper()
	config := filepath.Join(s.dir, "outbox-cdc.yaml")
	proposed := s.command("mapping", "suggest", "--dsn", s.db.DSN, "--table", "public."+table, "--topic", s.topic)
	write := func(tables string) {
		text := fmt.Sprintf("kafka: {clusters: {main: {brokers: [%q]}}}\nhttp: {listen: \"127.0.0.1:0\"}\nstreams:\n  - name: orders\n    slot: stranger_%d\n    postgres: {dsn: %q}\n    tables:\n%s",
			s.kafka.Addrs[0], time.Now().UnixNano(), s.db.DSN, tables)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	write(proposed)
	out, err := exec.Command(harness.Binary(s.t), "config", "validate", "--config", config).CombinedOutput()
	if asks := strings.Contains(proposed, "QUESTION: "); asks != (err != nil) || asks != strings.Contains(string(out), "is still a question") {
		s.t.Errorf("config validate: %v: %s", err, out)
	}
	write(answered(proposed))
	s.command("preview", "--config", config)
	s.command("init", "--config", config)
	p := harness.Start(s.t, exec.Command(harness.Binary(s.t), "run", "--config", config, "--log-format", "json"))
	s.kafka.AwaitRecords(s.t, s.topic, 1, time.Minute)
	p.Stop(30 * time.Second)
}
