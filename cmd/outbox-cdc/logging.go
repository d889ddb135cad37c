package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

type logFlags struct{ format, level string }

func addLogFlags(c *cobra.Command) *logFlags {
	f := &logFlags{}
	c.Flags().StringVar(&f.format, "log-format", "auto", "json, console, or auto: console on a terminal")
	c.Flags().StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	words(c, "log-format", "json", "console", "auto")
	words(c, "log-level", "debug", "info", "warn", "error")
	return f
}

// words completes a flag's value in the shell from a list.
func words(c *cobra.Command, flag string, list ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return list, cobra.ShellCompDirectiveNoFileComp
	})
}

// logger makes the process's logger.
func (f *logFlags) logger(to io.Writer) (zerolog.Logger, error) {
	levels := map[string]zerolog.Level{"debug": zerolog.DebugLevel, "info": zerolog.InfoLevel, "warn": zerolog.WarnLevel, "error": zerolog.ErrorLevel}
	level, ok := levels[f.level]
	if !ok {
		return zerolog.Nop(), usage("--log-level %q is not known: write debug, info, warn or error", f.level)
	}
	terminal := isTerminal(to)
	switch {
	case f.format == "console", f.format == "auto" && terminal:
		to = console(to, terminal)
	case f.format != "json" && f.format != "auto":
		return zerolog.Nop(), usage("--log-format %q is not known: write json, console or auto", f.format)
	}
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	zerolog.DurationFieldUnit = time.Second
	zerolog.ErrorMarshalFunc = func(err error) any { //nolint:reassign // the way that zerolog documents
		if err == nil {
			return nil
		}
		return postgres.Text(err)
	}
	return zerolog.New(to).Level(level).With().Timestamp().Logger(), nil
}

// console returns a writer for people. It writes colour codes of its own, so it makes each text printable by
// itself.
func console(to io.Writer, colour bool) io.Writer {
	text := func(value any) string {
		if value == nil {
			return ""
		}
		return printable(fmt.Sprintf("%s", value))
	}
	return zerolog.ConsoleWriter{
		Out: raw(to), NoColor: !colour || os.Getenv("NO_COLOR") != "", TimeFormat: "15:04:05.000",
		FormatMessage: text, FormatFieldValue: text, FormatErrFieldValue: text,
	}
}
