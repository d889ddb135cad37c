package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

func profileCommand(io streams) *cobra.Command {
	return group("profile", "Look at the ready-made mappings", `  outbox-cdc profile list
  outbox-cdc profile show im2be`, profileListCommand(io), profileShowCommand(io))
}

func profileListCommand(io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the profiles",
		RunE: func(*cobra.Command, []string) error {
			w := newTable(io.out)
			for _, name := range config.ProfileNames() {
				p, err := config.LoadProfile(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "%s\t%s\n", p.Name, p.Summary)
			}
			return w.Flush()
		},
	}
}

func profileShowCommand(io streams) *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Short:   "Print a profile, in the language of the configuration",
		Long:    "Prints a profile as it is in this binary. A table that names the profile may give any of these keys as well, which replaces the profile's.",
		Example: "  outbox-cdc profile show im2be",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("%s needs one name (see outbox-cdc profile list)", c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return config.ProfileNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := config.LoadProfile(args[0])
			if err != nil {
				return usage("%w", err)
			}
			_, err = fmt.Fprint(io.out, p.Source)
			return err
		},
	}
}
