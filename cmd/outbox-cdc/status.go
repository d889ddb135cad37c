package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/survey"
)

const (
	watchEvery    = 2 * time.Second // interval of --watch
	surveyTimeout = 30 * time.Second
)

func statusCommand(io streams) *cobra.Command {
	w := &statusWatch{io: io}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what each stream does",
		Long: `Shows of each stream its mode and why, who leads, the lag, the WAL that its slot holds back against
wal_budget and the server's limit, when the slot is at an end at this rate, rows that wait, what is
parked and why, rows that were given up, and how many rows a second go through.

It asks the running process (http.listen of the configuration, with its credentials), and the
database about streams that this process does not lead, or where none answers. The database does not
know rows in flight, throughput and the state of Kafka.

Exit code 1: something could not be found out, or a stream does not work.`,
		Example: `  outbox-cdc status
  outbox-cdc status --watch
  outbox-cdc status --stream orders --json
  outbox-cdc status --address https://outbox-1:9187`,
	}
	w.file = configFlag(c)
	streamFlag(c, &w.stream)
	jsonFlag(c, &w.json)
	c.Flags().BoolVarP(&w.repeat, "watch", "w", false, "look every two seconds until interrupted; with --json one object per line")
	c.Flags().StringVar(&w.address, "address", "", "ask the process at this `ADDRESS` (host:port or URL) instead")
	c.Flags().BoolVar(&w.database, "database", false, "ask the database only")
	c.RunE = func(c *cobra.Command, _ []string) error { return w.run(c.Context()) }
	return c
}

// statusWatch is one run of the command status.
type statusWatch struct {
	io               streams
	file             *string
	stream, address  string
	json             bool
	repeat, database bool

	process *process
	chosen  []*config.Stream
	pools   map[string]*pgxpool.Pool
	// forecasts are the forecasts for streams that no process leads, kept over all looks of --watch.
	forecasts map[string]*status.Forecast
}

func (w *statusWatch) run(ctx context.Context) error {
	cfg, chosen, err := load(*w.file, w.stream, chooseStreams)
	if err != nil {
		return err
	}
	w.chosen = chosen
	var unasked error
	if !w.database {
		w.process, unasked = newProcess(&cfg.HTTP, w.address)
	}
	if _, wrong := errors.AsType[*failure](unasked); wrong {
		return unasked
	}
	w.pools, w.forecasts = map[string]*pgxpool.Pool{}, map[string]*status.Forecast{}
	defer func() {
		for _, p := range w.pools {
			p.Close()
		}
	}()
	for _, s := range w.chosen {
		w.forecasts[s.Name] = &status.Forecast{}
		if w.pools[s.Name], err = openPool(s, nil); err != nil {
			return err
		}
	}
	for {
		next := time.After(watchEvery)
		err := w.show(w.look(ctx, unasked))
		if !w.repeat {
			return err
		}
		select {
		case <-ctx.Done():
			return nil // it was asked to end
		case <-next:
		}
	}
}

// look asks the process, and then the database about streams that the process does not lead.
func (w *statusWatch) look(ctx context.Context, unasked error) status.Report {
	report := status.Report{At: time.Now().UTC(), Streams: make([]status.Stream, len(w.chosen))}
	var answered *status.Report
	if w.process != nil && unasked == nil {
		answered, unasked = w.process.status(ctx)
	}
	known := map[string]status.Stream{}
	if answered != nil {
		report.Version, report.Process = answered.Version, answered.Process
		for _, s := range answered.Streams {
			known[s.Name] = s
		}
	}
	if unasked != nil {
		report.Note = unasked.Error()
	}
	var group errgroup.Group
	for i, s := range w.chosen {
		if from, ok := known[s.Name]; ok && from.Leader != nil && from.Leader.Here {
			report.Streams[i] = from
			continue
		}
		group.Go(func() error {
			bounded, cancel := context.WithTimeout(ctx, surveyTimeout)
			defer cancel()
			found := survey.Look(bounded, survey.Config{
				Name: s.Name, Delivery: s.Delivery, Slot: s.Slot, Tables: s.OutboxTables(), Pool: w.pools[s.Name], Budget: uint64(s.WALBudget), Forecast: w.forecasts[s.Name],
			})
			from, ok := known[s.Name]
			switch {
			case found.Unreachable && ok && from.Mode == status.ModeUnknown: // the process remembers more
				found = from
			case from.Error != "" && found.Error == "": // a process that does not lead may have a fault of its own
				found.Error = "the process: " + from.Error
				status.Judge(&found)
			}
			report.Streams[i] = found
			return nil
		})
	}
	_ = group.Wait() // each stream has its own error
	return report
}

func (w *statusWatch) show(r status.Report) error {
	var err error
	switch {
	case w.json && w.repeat:
		e := json.NewEncoder(w.io.out)
		e.SetEscapeHTML(false)
		err = e.Encode(r)
	case w.json:
		err = printJSON(w.io.out, r)
	default:
		if w.repeat && isTerminal(w.io.out) {
			fmt.Fprint(raw(w.io.out), "\x1b[H\x1b[2J")
		}
		err = printStatus(w.io.out, &r)
	}
	for i := range r.Streams {
		s := &r.Streams[i]
		untold := slices.ContainsFunc(s.Tables, func(t status.Table) bool { return t.Error != "" })
		if (s.Error != "" || untold) && err == nil {
			err = &failure{exitFailure, errReported}
		}
	}
	return err
}

func printStatus(out io.Writer, r *status.Report) error {
	if r.Note != "" {
		fmt.Fprintf(out, "from the database, since %s\n\n", r.Note)
	}
	for i := range r.Streams {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := printStream(out, r, &r.Streams[i]); err != nil {
			return err
		}
	}
	return nil
}

func printStream(out io.Writer, r *status.Report, s *status.Stream) error {
	fmt.Fprintf(out, "%s: %s\n", s.Name, s.ModeText)
	w := newTable(out)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", printable(name), printable(fmt.Sprintf(format, args...)))
	}
	told := func(text string) bool {
		return text == "" || slices.ContainsFunc(s.Findings, func(f status.Finding) bool { return strings.HasSuffix(f.Text, text) })
	}
	if !told(s.Reason) {
		line("reason", "%s", s.Reason)
	}
	for i := range s.Findings {
		if f := &s.Findings[i]; f.Level != status.Note && !f.Parked { // parks are listed below
			line(map[string]string{status.Bad: "trouble", status.Warn: "look at"}[f.Level], "%s%s", f.Text, since(f.Since))
		}
	}
	if s.Mode != status.ModeUnknown {
		line("leader", "%s", leaderText(s.Leader, r.Process))
	}
	for i := range s.Standbys {
		by := &s.Standbys[i]
		line("standby", "%s", leaderText(&status.Leader{Name: by.Name, Address: by.Address, Since: by.Since}, ""))
	}
	printSlot(line, s.Slot, r.At)
	for i := range s.Tables {
		line(s.Tables[i].Name, "%s", tableText(&s.Tables[i], r.At))
	}
	for _, c := range s.Kafka {
		switch {
		case !c.Usable:
			line("kafka "+c.Name, "cannot be used")
		case c.Fencing == status.FencingRefused:
			line("kafka "+c.Name, "usable, but the brokers refuse to fence former leaders (docs/runbooks/OutboxNotFenced.md)")
		default:
			line("kafka "+c.Name, "usable")
		}
	}
	if s.Delivery == config.ExactlyOnce {
		line("delivery", "%s", s.Delivery)
	}
	for i := range s.Tallies {
		line("tally "+s.Tallies[i].Cluster, "%s", s.Tallies[i].Text(s.Led()))
	}
	if s.Limit != nil {
		line("limit", "%s", s.Limit.Text())
	}
	if f := s.Flow; f != nil && s.Mode != status.ModeStandby {
		line("flow", "%.1f rows/s in the last minute; %d in flight; since the start %d published, %d refused, %d FAILED", f.PerSecond, f.InFlight, f.Published, f.Refused, f.GivenUp)
		if f.Left > 0 {
			line("left to others", "%d rows of the WAL since the start; outbox-cdc check (row-filter) says whether the publication can hold them back", f.Left)
		}
	}
	if s.Unaware() {
		line("parked", "not known")
	} else {
		printParks(line, &s.Parks)
	}
	return w.Flush()
}

func since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return ", since " + at.UTC().Format(time.RFC3339)
}

func leaderText(l *status.Leader, process string) string {
	if l == nil || l.Intruder != "" {
		return "none"
	}
	text := cmp.Or(l.Name, "-")
	if l.Here {
		text += " (the process at " + process + ")"
	}
	if l.Address != "" {
		text += " from " + l.Address
	}
	if l.Epoch > 0 {
		text += fmt.Sprintf(", epoch %d", l.Epoch)
	}
	if l.Since != "" {
		text += ", since " + l.Since
	}
	return text
}

// age returns the age of what was found out, if it is at least some seconds.
func age(at, now time.Time) string {
	if old := now.Sub(at); !at.IsZero() && old >= 3*time.Second {
		return " (" + status.About(old) + " ago)"
	}
	return ""
}

func printSlot(line func(string, string, ...any), s *status.Slot, now time.Time) {
	if s == nil {
		return
	}
	if !s.Exists {
		line("slot", "%s does not exist: run makes it, and sweeps the table until then", s.Name)
		return
	}
	words := []string{s.Name, cmp.Or(s.WALStatus, "-")}
	if !s.At.IsZero() {
		words = append(words, map[bool]string{true: "active", false: "not active"}[s.Active])
	}
	line("slot", "%s%s", strings.Join(words, ", "), age(s.At, now))
	line("WAL", "holds back %s", s.WALText())
	if s.HeldBy != "" {
		line("held by", "%s", s.HeldBy)
	}
	if s.WALStatus != "lost" { // otherwise it has ended
		line("end of slot", "%s", s.EndText())
	}
	lag := status.Bytes(s.Lag)
	if s.LagSeconds != nil {
		lag += fmt.Sprintf(", %.1f s", *s.LagSeconds)
	}
	line("lag", "%s", lag)
}

func tableText(t *status.Table, now time.Time) string {
	if t.Error != "" {
		return t.Error
	}
	if t.Pending == nil {
		return "not counted"
	}
	text := capped(*t.Pending, t.PendingCapped) + " pending"
	if t.Oldest > 0 {
		text += ", the oldest for " + status.About(time.Duration(t.Oldest*float64(time.Second)))
	}
	text += age(t.CountedAt, now)
	if t.Failed != nil {
		text += "; " + capped(*t.Failed, t.FailedCapped) + " failed" + age(t.FailedAt, now)
	}
	if t.FailedUnknown && t.Failed == nil {
		text += "; failed not counted: no index finds them"
	}
	return text
}

func capped(n int64, more bool) string {
	if more {
		return fmt.Sprintf("more than %d", n)
	}
	return strconv.FormatInt(n, 10)
}

func printParks(line func(string, string, ...any), p *status.Parks) {
	if p.Total == 0 {
		line("parked", "nothing")
		return
	}
	line("parked", "%d", p.Total)
	for _, g := range p.Top {
		line("", "%s (%s): %s, since %s", g.Scopes(), g.Cause, operator.OneLine(status.Why(g.Example, g.Reason), 200), g.Since.UTC().Format(time.RFC3339))
	}
}
