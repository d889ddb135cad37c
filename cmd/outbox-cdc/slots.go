package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/slots"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/survey"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func slotsCommand(io streams) *cobra.Command {
	var stream string
	var asJSON bool
	c := &cobra.Command{
		Use:   "slots",
		Short: "List every replication slot of the servers, and drop one",
		Long: `Lists every replication slot of the servers of the configuration: whose it is, who reads from it,
how much WAL it holds back on the primary's disk, how much more the server allows, and what
dropping it would do. A slot that nobody reads keeps WAL until the disk is full, unless the server
has a limit (max_slot_wal_keep_size).

whose: stream (of this configuration), orphan (outbox-cdc's, but of no stream of this
configuration), other.`,
		Example: `  outbox-cdc slots
  outbox-cdc slots --json
  outbox-cdc slots drop outbox_cdc_old`,
	}
	file := configFlag(c)
	streamFlag(c, &stream)
	jsonFlag(c, &asJSON)
	c.RunE = func(c *cobra.Command, _ []string) error {
		servers, err := lookAtServers(c.Context(), *file, stream, io)
		switch {
		case err != nil:
			return err
		case asJSON:
			return printJSON(io.out, slotsReport{servers})
		}
		for _, s := range servers {
			if err := printSlots(io.out, s); err != nil {
				return err
			}
		}
		return nil
	}
	c.AddCommand(dropCommand(io))
	return c
}

// slotsReport is the JSON of slots.
type slotsReport struct {
	// Servers of the configuration.
	Servers []*slotServer `json:"servers"`
}

// slotServer is one server with its slots.
type slotServer struct {
	// Server is its host:port.
	Server string `json:"server"`
	// Decoding is whether the server can decode its WAL: the level that is in force, and why.
	Decoding string `json:"decoding"`
	// KeepSize is `max_slot_wal_keep_size`, how much WAL a slot may hold back; -1: any amount.
	KeepSize string `json:"max_slot_wal_keep_size"`
	// Slots are its replication slots.
	Slots []slots.Slot `json:"slots"`

	streams []*config.Stream
}

func lookAtServers(ctx context.Context, file, stream string, io streams) ([]*slotServer, error) {
	cfg, chosen, err := load(file, stream, chooseStreams)
	if err != nil {
		return nil, err
	}
	servers := serversOf(cfg, chosen)
	for _, server := range servers {
		if err := server.look(ctx, asAdmin, io); err != nil {
			return nil, fmt.Errorf("server %s: %w", server.Server, err)
		}
	}
	return servers, nil
}

// serversOf returns the servers of the chosen streams, each with every stream on it.
func serversOf(cfg *config.Config, chosen []*config.Stream) []*slotServer {
	var servers []*slotServer
	for _, s := range chosen {
		name := serverOf(s)
		if slices.ContainsFunc(servers, func(o *slotServer) bool { return o.Server == name }) {
			continue
		}
		server := &slotServer{Server: name}
		for _, other := range cfg.Streams { // all streams: a slot of one that was not chosen is no orphan
			if serverOf(other) == name {
				server.streams = append(server.streams, other)
			}
		}
		servers = append(servers, server)
	}
	return servers
}

func serverOf(s *config.Stream) string {
	return net.JoinHostPort(s.Postgres.Host, strconv.Itoa(int(s.Postgres.Port)))
}

// look reads the slots, and from each database the streams that it knows. access chooses the role to connect
// as, given the stream's own.
func (v *slotServer) look(ctx context.Context, access func(postgres.Access) postgres.Access, io streams) error {
	var known []slots.Stream
	for i, s := range v.streams {
		conn, err := connectBy(ctx, s, access(marker(s, operatorName)), postgres.Access.Connect)
		if err != nil && (i > 0 || len(v.streams) > 1 && ctx.Err() == nil) {
			fmt.Fprintf(io.err, "outbox-cdc: stream %s: %v\n", s.Name, err)
			known = append(known, slots.Stream{Name: s.Name, Slot: s.Slot, Database: s.Postgres.Database, Configured: true})
			continue
		}
		if err != nil {
			return err
		}
		more, err := v.ask(ctx, conn, s)
		postgres.HangUp(conn)
		if err != nil {
			return err
		}
		known = append(known, more...)
	}
	if v.Slots == nil {
		return &failure{exitFailure, fmt.Errorf("no database of a configured stream on this server could be reached: correct postgres.dsn of one")}
	}
	slots.Judge(v.Slots, known)
	return nil
}

func (v *slotServer) ask(ctx context.Context, conn *pgx.Conn, s *config.Stream) ([]slots.Stream, error) {
	if v.Slots == nil {
		list, err := slots.List(ctx, postgres.On(conn))
		if err != nil {
			return nil, err
		}
		if err := postgres.On(conn).QueryRow(ctx, `SELECT current_setting('max_slot_wal_keep_size')`).Scan(&v.KeepSize); err != nil {
			return nil, err
		}
		state, err := replication.InspectServer(ctx, conn.PgConn())
		if err != nil {
			return nil, err
		}
		if v.Decoding, _ = state.Undecodable(); v.Decoding == "" {
			v.Decoding = state.Decoding()
		}
		v.Slots = append([]slots.Slot{}, list...)
	}
	ours := slots.Stream{Name: s.Name, Slot: s.Slot, Database: s.Postgres.Database, Configured: true}
	for _, t := range s.OutboxTables() {
		ours.Stateless = ours.Stateless || !t.Stateful()
	}
	leader, _, err := survey.Leader(ctx, postgres.On(conn), s.Name, s.Slot)
	if err != nil {
		return nil, err
	}
	if leader != nil {
		ours.Intruder = leader.Intruder
		ours.Led = fmt.Sprintf("%s (pid %s)", leader.Name, leader.PID)
	}
	known, err := slots.Remembered(ctx, postgres.On(conn), s.Postgres.Database)
	return append(known, ours), err
}

func printSlots(out io.Writer, v *slotServer) error {
	limit := "max_slot_wal_keep_size is " + v.KeepSize
	if v.KeepSize == "-1" {
		limit = "no limit to what they hold back (max_slot_wal_keep_size)"
	}
	fmt.Fprintf(out, "server %s: %s; %s; %s\n", v.Server, plural(len(v.Slots), "slot"), limit, v.Decoding)
	if len(v.Slots) == 0 {
		return nil
	}
	w := newTable(out)
	fmt.Fprintln(w, "SLOT\tWHOSE\tDATABASE\tREADER\tHOLDS BACK\tLEFT\tSTATE\tDROPPING FREES")
	for i := range v.Slots {
		s := &v.Slots[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, whose(s), cmp.Or(s.Database, "-"), reader(s),
			status.Bytes(s.Retained), left(s), slotState(s), status.Bytes(s.Frees))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range v.Slots {
		if s := &v.Slots[i]; s.Whose == slots.Orphan && s.Refusal == "" {
			fmt.Fprintf(out, "%s is an orphan: %s. Drop it: outbox-cdc slots drop %s\n", s.Name, s.Dropping, s.Name)
		}
	}
	return nil
}

func whose(s *slots.Slot) string {
	if s.Whose == slots.OfStream {
		return "stream " + s.Stream
	}
	return s.Whose
}

func reader(s *slots.Slot) string {
	switch {
	case s.Client != nil:
		return s.Client.Application + " (pid " + strconv.Itoa(s.Client.PID) + ")"
	case s.InactiveSince != "":
		return "none since " + short(s.InactiveSince)
	}
	return "none"
}

// left returns what the server still allows a slot. A lost slot has nothing left.
func left(s *slots.Slot) string {
	if s.WALStatus == "lost" {
		return "none"
	}
	return room(s.Safe)
}

func room(safe *int64) string {
	switch {
	case safe == nil:
		return "no limit"
	case *safe < 0:
		return "none"
	}
	return status.Bytes(uint64(*safe))
}

func slotState(s *slots.Slot) string {
	words := []string{cmp.Or(s.WALStatus, "-")}
	if s.Invalidation != "" {
		words = append(words, s.Invalidation)
	}
	if s.Failover != nil && *s.Failover {
		words = append(words, "failover")
	}
	if s.Synced != nil && *s.Synced {
		words = append(words, "synced")
	}
	if s.Temporary {
		words = append(words, "temporary")
	}
	return strings.Join(words, ", ")
}

func dropCommand(io streams) *cobra.Command {
	var stream string
	var yes, asJSON bool
	c := &cobra.Command{
		Use:   "drop NAME",
		Short: "Drop a replication slot",
		Long: `Drops one slot, after saying whose it is, what dropping it does and how much WAL the server can
remove then (at its next checkpoint). It asks first. A slot that is in use is refused, and one of a
stream that a process leads: stop that first. It connects as the role of replication_dsn, or as that
of ` + adminVariable + `; with several servers name a stream of the right one.`,
		Example: `  outbox-cdc slots drop outbox_cdc_old
  outbox-cdc slots drop outbox_cdc_old --yes --json`,
		Args: oneArgument("slot name"),
	}
	file, logs := configFlag(c), addLogFlags(c)
	streamFlag(c, &stream)
	yesFlag(c, &yes, "drop without asking")
	jsonFlag(c, &asJSON)
	c.RunE = func(c *cobra.Command, args []string) error {
		log, err := logs.logger(io.err)
		if err != nil {
			return err
		}
		servers, err := lookAtServers(c.Context(), *file, stream, io)
		if err != nil {
			return err
		}
		server, slot, err := findSlot(servers, args[0])
		if err != nil {
			return err
		}
		by, err := dropSlot(c.Context(), server, slot, yes, io)
		if err != nil {
			return err
		}
		by.audit(log).Str("server", server.Server).Str("slot", slot.Name).Str("whose", whose(slot)).Uint64("wal_freed_bytes", slot.Frees).
			Msg("an operator dropped a slot")
		if asJSON {
			return printJSON(io.out, droppedSlot{server.Server, slot, by})
		}
		fmt.Fprintf(io.out, "dropped slot %s: the server can remove %s of WAL at its next checkpoint\n", slot.Name, status.Bytes(slot.Frees))
		return nil
	}
	return c
}

// droppedSlot is the JSON of slots drop.
type droppedSlot struct {
	// Server is its host:port.
	Server string `json:"server"`
	// Dropped is the slot as it was.
	Dropped *slots.Slot `json:"dropped"`
	// By is who did it.
	By actor `json:"by"`
}

func findSlot(servers []*slotServer, name string) (*slotServer, *slots.Slot, error) {
	var on *slotServer
	var found *slots.Slot
	var names []string
	for _, server := range servers {
		for i := range server.Slots {
			names = append(names, server.Slots[i].Name)
			if server.Slots[i].Name != name {
				continue
			}
			if found != nil {
				return nil, nil, usage("%s and %s both have a slot %s: name a stream of the right server with --stream", on.Server, server.Server, name)
			}
			on, found = server, &server.Slots[i]
		}
	}
	if found == nil {
		return nil, nil, usage("there is no slot %q, but %s", name, cmp.Or(strings.Join(names, ", "), "none at all"))
	}
	return on, found, nil
}

func dropSlot(ctx context.Context, server *slotServer, slot *slots.Slot, yes bool, io streams) (actor, error) {
	if slot.Refusal != "" {
		return actor{}, &failure{exitPermanent, fmt.Errorf("slot %s is not dropped: %s", slot.Name, slot.Refusal)}
	}
	fmt.Fprintf(io.err, "slot %s on %s (%s): dropping it frees %s of WAL; %s\n", slot.Name, server.Server, whose(slot), status.Bytes(slot.Frees), slot.Dropping)
	if err := confirm(io, yes, "Drop slot "+slot.Name+"?"); err != nil {
		return actor{}, err
	}
	by := server.streams[0] // any stream of the server, unless the slot has its own
	for _, s := range server.streams {
		if s.Name == slot.Stream {
			by = s
		}
	}
	pg, err := connectBy(ctx, by, asAdmin(streamer(by, operatorName)), postgres.Access.ConnectPlain)
	if err != nil {
		return actor{}, err
	}
	defer postgres.HangUp(pg)
	err = replication.DropSlot(ctx, pg, slot.Name)
	if postgres.HasCode(err, pgerrcode.InsufficientPrivilege) {
		err = &failure{exitPermanent, postgres.WithHint(err, "it takes a role with REPLICATION: that of replication_dsn, or put one into "+adminVariable)}
	}
	return whoActs(pg.ParameterStatus("session_authorization")), err
}
