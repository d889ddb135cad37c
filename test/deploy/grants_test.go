package deploy

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// The roles and grants of docs/operations.md are those that init prints for the
// stream that it describes.
func TestGrants(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, root+"/docs/operations.md"), "<!-- grants: held to the code by go test ./test/deploy -->\n```sql\n")
	documented, _, ok2 := strings.Cut(rest, "```\n")
	if !ok || !ok2 {
		t.Fatal("the marker is gone")
	}
	cfg, err := config.Parse([]byte(`
kafka: {clusters: {main: {brokers: ["localhost:9092"]}}}
streams:
  - {name: orders, postgres: {dsn: "postgres://localhost/orders"}, tables: [{table: public.outbox, profile: native}]}
`), "orders.yaml", ".")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := replication.InitPlan(&replication.State{Database: "orders"}, replication.Setup{
		Config:     replication.Config{Slot: "s", Publication: "p", Tables: cfg.Streams[0].OutboxTables()},
		Stream:     "orders",
		StreamRole: "outbox_cdc_stream", WriteRole: "outbox_cdc", NoSlot: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var made strings.Builder
	for line := range strings.Lines(replication.Script(plan)) {
		if strings.HasPrefix(line, "GRANT ") || strings.HasPrefix(line, "CREATE ROLE ") {
			made.WriteString(line)
		}
	}
	if documented != made.String() {
		t.Errorf("docs/operations.md should say:\n%s", made.String())
	}
}
