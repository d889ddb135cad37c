package sweeper

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A long round logs its progress every ten seconds.
func TestLongRetentionSaysHowFarItIs(t *testing.T) {
	var log bytes.Buffer
	now := time.Now()
	r := retention{Sweeper: &Sweeper{cfg: Config{Log: zerolog.New(&log)}}, table: &outbox.Table{Schema: "public", Name: "outbox"}, began: now, told: now}
	for second := range 25 {
		r.deleted = second * 50
		r.tell(now.Add(time.Duration(second) * time.Second))
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), `"deleted":500,"rows_per_second":50,`) {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
}
