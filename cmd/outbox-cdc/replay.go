package main

import (
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/operator"
)

const dryRun = `Without --yes it only counts them and shows the first. Rows that are not in that state any more when
their turn comes, or that somebody has locked, are passed over, so a row in flight is never touched.
Who did what is logged on standard error.`

func requeueCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "requeue",
		Short: "Make FAILED rows PENDING again",
		Long: `Makes FAILED rows PENDING as if they had never been tried: their attempts are counted from zero, their error is
cleared, a version column is raised. The stream finds them by its watch (watch_interval and grace)
and sweeps them. Requeued rows are late: where a later row of the key was already SENT, the order of
the key cannot be kept, and requeue says of which rows.

` + dryRun,
		Example: `  outbox-cdc failed requeue --id 4711 --table public.outbox
  outbox-cdc failed requeue --topic orders --error 'too large' --since 24h --yes
  outbox-cdc failed requeue --all --limit 100000 --yes`,
	}
	a := addActFlags(c, 10_000, "failed_at, else created_at,")
	a.addError(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.run(c, io, operator.Operation{Action: operator.Requeue})
	}
	return c
}

func discardCommand(io streams) *cobra.Command {
	var remove bool
	var status string
	c := &cobra.Command{
		Use:   "discard",
		Short: "Give FAILED rows up for good",
		Long: `Gives FAILED rows up: they will never be published. Say how, since the table is yours:

  --status ARCHIVED   gives them that value in the status column, one that means neither pending,
                      sent nor failed (your table must allow it; later clean-up is your own)
  --delete            deletes them (the role needs DELETE on the table)

` + dryRun,
		Example: `  outbox-cdc failed discard --id 4711 --table public.outbox --delete --yes
  outbox-cdc failed discard --topic orders --until 2026-01-31 --status ARCHIVED`,
	}
	a := addActFlags(c, 10_000, "failed_at, else created_at,")
	a.addError(c)
	c.Flags().BoolVar(&remove, "delete", false, "delete the rows")
	c.Flags().StringVar(&status, "status", "", "give the rows this `STATUS` instead")
	c.RunE = func(c *cobra.Command, _ []string) error {
		op := operator.Operation{Action: operator.Dismiss, Status: status}
		if remove {
			op = operator.Operation{Action: operator.Delete}
		}
		if remove == c.Flags().Changed("status") {
			return usage("say either --delete or --status STATUS (see %s --help)", c.CommandPath())
		}
		return a.run(c, io, op)
	}
	return c
}

func replayCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay",
		Short: "Publish SENT rows once more",
		Long: `Makes SENT rows PENDING, so that they are swept and published once more, in the order of the table
but after everything that was published since: for a consumer that lost what it had read. Consumers
see the same event ids again. Tables that delete on success or keep no state have nothing to replay.
(replay and failed replay are the same.)

` + dryRun,
		Example: `  outbox-cdc replay --since 2026-01-31T10:00:00Z --until 2026-01-31T11:00:00Z --topic orders
  outbox-cdc replay --since 2h --rows-per-second 500 --yes`,
	}
	a := addActFlags(c, operator.MaxLimit, "sent_at, else created_at,")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.run(c, io, operator.Operation{Action: operator.Replay})
	}
	return c
}
