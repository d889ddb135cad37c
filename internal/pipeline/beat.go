package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// beatEvery is the interval at which a connection that does not stream is kept alive.
const beatEvery = time.Second

// whileBeating calls do and keeps conn alive meanwhile: the server ends a silent session, and conn does not
// stream. If conn is lost, it cancels the context of do and returns.
func whileBeating(ctx context.Context, conn *replication.Conn, do func(context.Context) error) error {
	return wait.While(ctx, do, func(ctx context.Context) error {
		for wait.Sleep(ctx, beatEvery) == nil {
			// A Beat in progress is not interrupted, because that would end the connection.
			if err := conn.Beat(context.WithoutCancel(ctx)); err != nil {
				return fmt.Errorf("keeping the lead before the WAL is read: %w", err)
			}
		}
		return nil
	})
}
