// Command outbox-cdc streams transactional outbox tables from PostgreSQL to Kafka. This package has commands,
// flags, wiring, signals and exit codes, and nothing else.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// The exit codes. A second signal ends the process with 128 plus the signal's number: 130 for SIGINT, 143 for
// SIGTERM.
const (
	exitOK        = 0
	exitFailure   = 1 // a failure that may not happen another time
	exitUsage     = 2 // the command line or the configuration is wrong
	exitPermanent = 3 // a person has to act first, for example grant a privilege or change a server setting
)

func main() {
	seal()
	os.Exit(execute(os.Args[1:], streams{out: os.Stdout, err: os.Stderr}))
}

// streams are the outputs of a command: results go to out, everything else to err.
type streams struct{ out, err io.Writer }

// execute runs a command line and returns its exit code.
func execute(args []string, io streams) int {
	io = streams{out: &safeWriter{to: io.out}, err: &safeWriter{to: io.err}}
	ctx, stop := untilSignal(io.err)
	defer stop()
	root := rootCommand(io)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	report(io.err, err)
	return exitCode(err)
}

// failure is an error with its exit code.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usage(format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...)}
}

func exitCode(err error) int {
	f, coded := errors.AsType[*failure](err)
	_, wrong := errors.AsType[config.Problems](err)
	switch {
	case err == nil:
		return exitOK
	case coded:
		return f.code
	case wrong:
		return exitUsage
	case postgres.Permanent(err):
		return exitPermanent
	}
	return exitFailure
}

// report prints an error once. Problems of a configuration file are printed unchanged, one per line, so that
// editors find the places.
func report(to io.Writer, err error) {
	problems, wrong := errors.AsType[config.Problems](err)
	switch {
	case err == nil, errors.Is(err, errReported):
	case wrong:
		fmt.Fprintln(to, problems)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(to, "outbox-cdc: interrupted")
	default:
		fmt.Fprintln(to, "outbox-cdc: "+err.Error())
	}
}

// errReported is an error that was printed already.
var errReported = errors.New("reported")

// builtWith are commands that a build tag adds.
var builtWith []func() *cobra.Command

func rootCommand(io streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox-cdc",
		Short: "Stream transactional outbox tables from PostgreSQL to Kafka",
		Long: `outbox-cdc streams a transactional outbox table from PostgreSQL to Kafka. A replication slot
feeds it, each row's status is written back to your own table, and a sweeper covers what the
slot missed: lose the slot, lose nothing.

Begin with: outbox-cdc demo (nothing needed), or on your own database

  outbox-cdc mapping suggest    what is the mapping of my table?
  outbox-cdc config validate    is the configuration right?
  outbox-cdc preview            what would be sent?
  outbox-cdc init --show-sql    what would be made in the database?
  outbox-cdc init               make it
  outbox-cdc check              is everything right?
  outbox-cdc run                stream
  outbox-cdc status             what does each stream do?

Exit codes:
  0    done; run: stopped by a signal (a warning says if drain_timeout ran out)
  1    failed; it may work another time
  2    the command line or the configuration is wrong
  3    somebody has to act first (a privilege, a server setting, a name that is taken)
  130  a second SIGINT stopped it at once (143: SIGTERM)`,
		SilenceErrors: true, // report prints the error once
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(io.out)
	root.SetErr(io.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if unknown := noArguments(c, c.Flags().Args()); c.HasSubCommands() && unknown != nil { // an unknown command also makes its flags unknown
			return unknown
		}
		return usage("%w (see %s --help)", err, c.CommandPath())
	})
	root.AddCommand(demoCommand(io), runCommand(io), initCommand(io), compareCommand(io), configCommand(io), profileCommand(io), mappingCommand(io), previewCommand(io), versionCommand(io))
	root.AddCommand(failedCommand(io), pendingCommand(io), replayCommand(io), slotsCommand(io), destroyCommand(io), statusCommand(io), sweepCommand(io))
	root.AddCommand(checkCommand(io), pauseCommand(io), resumeCommand(io), journalCommand(io))
	for _, command := range builtWith {
		root.AddCommand(command())
	}
	refuseArguments(root)
	root.InitDefaultCompletionCmd()
	nameValues(root)
	return root
}

// placeholders stand for a flag's value in help, by type, if the flag's text has no name for the value.
var placeholders = map[string]string{"string": "TEXT", "duration": "DURATION", "int": "NUMBER"}

// namedValue is a flag's value that help shows by a word instead of a Go type.
type namedValue struct {
	pflag.Value
	name string
}

func (v namedValue) Type() string { return v.name }

func nameValues(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		name, _ := pflag.UnquoteUsage(f)
		if word, ok := placeholders[f.Value.Type()]; ok && name == f.Value.Type() {
			f.Value = namedValue{f.Value, word}
			f.DefValue = strings.TrimPrefix(f.DefValue, "0s") // so that help shows no default of 0s
		}
	})
	for _, sub := range c.Commands() {
		nameValues(sub)
	}
}

// refuseArguments makes every command without Args refuse arguments.
func refuseArguments(c *cobra.Command) {
	if c.Args == nil {
		c.Args = noArguments
	}
	for _, sub := range c.Commands() {
		refuseArguments(sub)
	}
}

// noArguments returns an error if there are arguments, and suggests the command that may be meant.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + c.CommandPath() + " --help"
	if c.HasSubCommands() {
		c.SuggestionsMinimumDistance = 2
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			alike := func(a, b string) int { return cmp.Compare(beginning(a, args[0]), beginning(b, args[0])) }
			hint = "did you mean " + slices.MaxFunc(near, alike) + "?"
		}
		return usage("unknown command %q for %s (%s)", args[0], c.CommandPath(), hint)
	}
	return usage("%s takes no argument %q (%s)", c.CommandPath(), args[0], hint)
}

// beginning returns the length of the common prefix of two words.
func beginning(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// group returns a command that only has subcommands.
func group(use, short, example string, parts ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Example: example, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(parts...)
	return c
}

func configFlag(c *cobra.Command) *string {
	file := c.Flags().StringP("config", "c", "", "configuration `FILE` (default: "+config.FileVariable+", "+strings.Join(config.DefaultFiles, ", ")+")")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return file
}
