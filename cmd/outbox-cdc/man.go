//go:build manual

// A separate program makes the manual pages when packages are built, so that the code that writes them is not
// linked into the program that streams.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func init() { builtWith = append(builtWith, manCommand) }

// manCommand is for people who build packages, so help does not list it.
func manCommand() *cobra.Command {
	c := &cobra.Command{
		Use:    "man",
		Short:  "Write the manual pages into a folder",
		Hidden: true,
	}
	dir := c.Flags().String("dir", "man", "`FOLDER` to write to")
	c.RunE = func(c *cobra.Command, _ []string) error { return writeManual(c.Root(), *dir) }
	return c
}

// writeManual writes a page for every command. The pages have the date of the commit, so that the same commit
// gives the same pages.
func writeManual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- everyone may read manual pages
		return fmt.Errorf("make the folder of the manual pages: %w", err)
	}
	date := committed()
	if date.IsZero() {
		date = time.Unix(0, 0)
	}
	date = date.UTC()
	v, _ := build()
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "outbox-cdc " + v, Manual: "outbox-cdc", Date: &date}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("write the manual pages to %s: %w", dir, err)
	}
	return nil
}
