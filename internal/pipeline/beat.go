package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// beatEvery keeps the replication connection, which has the leadership, alive
// while somebody else has a lock.
const beatEvery = time.Second

// whileBeating does something else while conn, which does not stream, is kept alive:
// the server ends a session that says nothing. It ends with conn.
func whileBeating(ctx context.Context, conn *replication.Conn, do func(context.Context) error) error {
	return wait.While(ctx, do, func(ctx context.Context) error {
		for wait.Sleep(ctx, beatEvery) == nil {
			// A try that is under way is not interrupted: that would end the connection.
			if err := conn.Beat(context.WithoutCancel(ctx)); err != nil {
				return fmt.Errorf("keeping the lead before the WAL is read: %w", err)
			}
		}
		return nil
	})
}
