package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
)

func configCommand(io streams) *cobra.Command {
	return group("config", "Check a configuration, or print its schema", `  outbox-cdc config validate --config outbox-cdc.yaml
  outbox-cdc config schema > outbox-cdc.schema.json`, validateCommand(io), schemaCommand(io))
}

func validateCommand(io streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration file",
		Long: `Reads the file as run would, with the variables and files that it refers to, and prints every
fault that it finds: file:line:column, the key, what was found and what to write instead.
It connects nowhere, and reads files with secrets. Secrets are never printed.

--against-database also compares each table with its mapping, and lists everything in which they
differ: columns that are missing or of another type, other words for the status, an id that is not
unique, NULLs. Each comes with the lines of YAML that would fix it, and all of them together at
the end. Differences that keep rows from being delivered end it with exit code 2.`,
		Example: `  outbox-cdc config validate --config /etc/outbox-cdc/outbox-cdc.yaml
  outbox-cdc config validate --against-database --stream orders`,
	}
	file, o := configFlag(c), againstOptions{}
	c.Flags().BoolVar(&o.against, "against-database", false, "compare each table with its mapping")
	streamFlag(c, &o.stream)
	c.Flags().BoolVar(&o.json, "json", false, "with --against-database: print JSON (fields: docs/check.md)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(*file)
		if err != nil {
			return err
		}
		tellExposed(cfg, io)
		if unreadable := cfg.UnreadableSecrets(c.Context()); len(unreadable) > 0 {
			return unreadable
		}
		if o.json && !o.against {
			return usage("--json is for --against-database: add that, or leave --json out")
		}
		if o.against {
			return against(c.Context(), cfg, o, io)
		}
		tables := 0
		for _, s := range cfg.Streams {
			tables += len(s.Tables)
		}
		fmt.Fprintf(io.out, "%s is right: %s, %s, %s\n", cfg.File, plural(len(cfg.Streams), "stream"), plural(tables, "table"), plural(len(cfg.Kafka.Clusters), "Kafka cluster"))
		return nil
	}
	return c
}

// tellExposed warns of files with secrets that others can read.
func tellExposed(cfg *config.Config, io streams) {
	for _, w := range cfg.Warnings {
		fmt.Fprintln(io.err, "warning: a file with secrets can be read by others: "+w)
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func schemaCommand(io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configuration files",
		Long: `Prints the JSON Schema (draft 2020-12) of configuration files, with every key's description and
default, for completion and checks in an editor. Put this line at the top of the file:

  # yaml-language-server: $schema=outbox-cdc.schema.json`,
		Example: `  outbox-cdc config schema > outbox-cdc.schema.json`,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.out.Write(config.JSONSchema)
			return err
		},
	}
}

// ---- config validate --against-database ----

type againstOptions struct {
	against, json bool
	stream        string
}

// againstReport is the JSON of the comparison.
type againstReport struct {
	// Version of this layout; it is raised when a field changes its meaning.
	Version int `json:"version"`
	// Streams that were compared.
	Streams []differences `json:"streams"`
}

type differences struct {
	// Stream is the name of the stream.
	Stream string `json:"stream"`
	// Differences between its tables and their mappings.
	Differences []preflight.Difference `json:"differences"`
}

// against compares the tables of streams with their mappings.
func against(ctx context.Context, cfg *config.Config, o againstOptions, io streams) error {
	chosen, err := chooseStreams(cfg, o.stream)
	if err != nil {
		return err
	}
	all := []differences{}
	fatal := false
	for i, s := range preflightStreams(cfg, chosen) {
		found, err := preflight.Compare(ctx, &s, preflight.Options{})
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		all = append(all, differences{s.Name, append([]preflight.Difference{}, found...)})
		fatal = fatal || slices.ContainsFunc(found, func(d preflight.Difference) bool { return d.Fatal })
		if !o.json {
			printDifferences(io.out, chosen[i], found)
		}
	}
	if o.json {
		if err := printJSON(io.out, againstReport{1, all}); err != nil {
			return err
		}
	}
	if fatal {
		return &failure{exitUsage, errReported}
	}
	return nil
}

func printDifferences(out io.Writer, s *config.Stream, all []preflight.Difference) {
	for _, t := range s.Tables {
		name := t.Outbox.String()
		var found []preflight.Difference
		for _, d := range all {
			if d.Table == name {
				found = append(found, d)
			}
		}
		with := "its mapping"
		if t.Profile != "" {
			with = "profile " + t.Profile
		}
		if len(found) == 0 {
			fmt.Fprintf(out, "%s, %s: fits %s\n", s.Name, name, with)
			continue
		}
		fmt.Fprintf(out, "%s, %s: %s from %s\n", s.Name, name, plural(len(found), "difference"), with)
		for _, d := range found {
			kind := "note"
			if d.Fatal {
				kind = "wrong"
			}
			fmt.Fprintf(out, "\n  %s: %s\n", kind, d.Problem)
			for _, line := range d.Override.Lines() {
				fmt.Fprintf(out, "    %s\n", line)
			}
			if d.Hint != "" {
				fmt.Fprintf(out, "    # %s\n", d.Hint)
			}
		}
		printOverrides(out, t, found)
	}
}

// printOverrides prints the lines that remove the differences, as they have to be written.
func printOverrides(out io.Writer, t *config.Table, found []preflight.Difference) {
	var all preflight.Overrides
	for _, d := range found {
		if d.Fatal {
			all = append(all, d.Override...)
		}
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(out, "\n  together, where … stands for what only you know:\n\n    - table: %s\n", t.Outbox)
	if t.Profile != "" {
		fmt.Fprintf(out, "      profile: %s\n", t.Profile)
	}
	for _, line := range all.Lines() {
		fmt.Fprintf(out, "      %s\n", line)
	}
	fmt.Fprintln(out)
}
