package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/platform"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// After an upgrade, init has to add the columns that are younger than their table, so init checks for each of
// them.
func TestInitLooksForEachColumnThatCameLater(t *testing.T) {
	plan, err := InitPlan(&State{}, Setup{Stream: "s", NoSlot: true})
	if err != nil {
		t.Fatal(err)
	}
	columns := regexp.MustCompile(`ADD COLUMN IF NOT EXISTS (\w+)`).FindAllStringSubmatch(sql.Schema, -1)
	if len(columns) < 3 {
		t.Fatal(columns)
	}
	for _, c := range columns {
		if !strings.Contains(plan[0].Done, "'"+c[1]+"'") {
			t.Errorf("init takes a schema without column %s for complete: %s", c[1], plan[0].Done)
		}
	}
}

// On RDS and Aurora no role may have the attribute REPLICATION. A role is granted instead, both by init and
// in the hints about what init could not do.
func TestWhereARoleLetsReplicate(t *testing.T) {
	rds, setup := platform.Of(platform.Signs{Roles: []string{"rds_superuser"}}), Setup{StreamRole: "streamer", WriteRole: "writer", NoSlot: true}
	for _, c := range []struct {
		on   *platform.Platform
		want string
	}{{nil, `CREATE ROLE "streamer" LOGIN REPLICATION;`}, {rds, `CREATE ROLE "streamer" LOGIN; GRANT rds_replication TO "streamer";`}} {
		plan, err := InitPlan(&State{Platform: c.on}, setup)
		if err != nil || plan[0].SQL != c.want || plan[1].SQL != `CREATE ROLE "writer" LOGIN;` {
			t.Errorf("%v: %q, %q", err, plan[0].SQL, plan[1].SQL)
		}
	}
	state := State{WALLevel: "replica", Plugins: plugin, Platform: rds}
	if v := Judge(&state, &Config{}, Identity{}); v.Err == nil || !strings.Contains(v.Err.Hint, "in the DB parameter group: rds.logical_replication = 1") {
		t.Errorf("%+v", v.Err)
	}
}

// A refusal of the output plugin is not a lack of rights. In both places where it can occur, the hint names
// the setting.
func TestAPluginThatMayNotBeUsed(t *testing.T) {
	refused := func(hint string) error { return &pgconn.PgError{Code: "42501", Message: "no", Hint: hint} }
	named := refused(`add it to "output_plugin_libraries" and reload`)
	if e := startError("s", named); !e.Permanent || !strings.Contains(e.Hint, "ALTER SYSTEM SET output_plugin_libraries = pgoutput") {
		t.Errorf("%+v", e)
	}
	if e := makeSlotError(t.Context(), nil, "s", named); !e.Permanent || !strings.Contains(e.Hint, "ALTER SYSTEM SET output_plugin_libraries = pgoutput") {
		t.Errorf("%+v", e)
	}
	if e := startError("s", refused("")); !strings.Contains(e.Hint, "REPLICATION") {
		t.Errorf("%+v", e)
	}
}

func FuzzCopyData(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{'k'})
	f.Add(append([]byte{'k'}, make([]byte, 17)...))
	f.Add(append([]byte{'w'}, make([]byte, 23)...))
	f.Add(append([]byte{'w'}, bytes.Repeat([]byte{7}, 40)...))
	f.Fuzz(func(t *testing.T, body []byte) {
		var m Message
		if err := m.readCopyData(body); err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("%v is no ErrProtocol", err)
			}
			return
		}
		at := outbox.LSN(binary.BigEndian.Uint64(body[1:]))
		switch m.Kind {
		case Data:
			if m.WALStart != at || m.WALEnd != outbox.LSN(binary.BigEndian.Uint64(body[9:])) || !bytes.Equal(m.Data, body[25:]) {
				t.Fatalf("%+v of %x", m, body)
			}
		case Keepalive:
			if m.WALEnd != at || m.ReplyRequested != (body[17] != 0) || len(body) != 18 {
				t.Fatalf("%+v of %x", m, body)
			}
		default:
			t.Fatalf("kind %d", m.Kind)
		}
	})
}

// trickle serves bytes in pieces of the given sizes, with a timeout between any two, and then the end.
type trickle struct {
	net.Conn
	data  []byte
	sizes []byte
	pause bool
}

func (c *trickle) Read(p []byte) (int, error) {
	c.pause = !c.pause
	if c.pause {
		return 0, os.ErrDeadlineExceeded
	}
	if len(c.data) == 0 {
		return 0, net.ErrClosed
	}
	n := len(c.data)
	if len(c.sizes) > 0 {
		n, c.sizes = int(c.sizes[0])+1, c.sizes[1:]
	}
	n = copy(p, c.data[:min(n, len(c.data))])
	c.data = c.data[n:]
	return n, nil
}

// However the bytes are cut, and with a timeout at every cut, the same frames come out. Nothing panics, and
// no more memory is used than bytes came.
func FuzzFrames(f *testing.F) {
	message := func(kind byte, body string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
	}
	good := append(append(message('d', "hello"), message('Z', "")...), message('d', strings.Repeat("x", 300))...)
	f.Add(good, []byte{0, 0, 3, 200})
	f.Add([]byte{'d', 0, 0, 0, 3}, []byte{0})
	f.Add([]byte{'d', 0xff, 0xff, 0xff, 0xff, 1, 2}, []byte{0})
	f.Add([]byte{'d', 0, 0, 0x30, 0x30}, []byte{0})
	long := strings.Repeat("x", 8<<10)
	value := func(format byte, text string) string {
		return string(binary.BigEndian.AppendUint32([]byte{format}, uint32(len(text)))) + text
	}
	for _, row := range []string{
		"I\x00\x00\x00\x01N\x00\x04" + value('t', long) + "n" + value('b', long) + value('t', "short"),
		"U\x00\x00\x00\x01O\x00\x01" + value('t', long) + "N\x00\x02u" + value('t', long),
		"I\x00\x00\x00\x01N\x00\x01t\x7f\xff\xff\xff" + long,
		"I\x00\x00\x00\x01" + strings.Repeat("N\x00\x00", 1<<10),
		"M" + long,
	} {
		f.Add(append(walData(7, []byte(row)), message('d', "next")...), []byte{0, 24, 3, 1, 200, 255, 7})
	}
	f.Fuzz(func(t *testing.T, data, sizes []byte) {
		const longest = 1 << 10
		whole := newFrames(nil, 64, longest)
		whole.buf, whole.w = append([]byte(nil), data...), len(data)
		cut := newFrames(&trickle{data: append([]byte(nil), data...), sizes: sizes}, 16, longest)
		for {
			kind, body, ok, err := whole.next()
			gotKind, gotBody, gotErr := nextOf(t, cut)
			switch {
			case err != nil:
				if gotErr == nil || gotErr.Error() != err.Error() {
					t.Fatalf("cut: %v, whole: %v", gotErr, err)
				}
				return
			case !ok:
				if !errors.Is(gotErr, net.ErrClosed) {
					t.Fatalf("cut: %c %q %v, whole: at its end", gotKind, gotBody, gotErr)
				}
				return
			case gotErr != nil || gotKind != kind || !bytes.Equal(gotBody, body):
				t.Fatalf("cut: %c %q %v, whole: %c %q", gotKind, gotBody, gotErr, kind, body)
			}
			// A long row has at most two tuples of 65535 columns, each with five bytes of its own.
			if len(cut.buf) > 4*longest || len(gotBody) > 2*longest+smallValue+2*5*(1<<16) {
				t.Fatalf("buffer of %d bytes, message of %d", len(cut.buf), len(gotBody))
			}
		}
	})
}

func nextOf(t *testing.T, f *frames) (byte, []byte, error) {
	for {
		complete := f.complete()
		kind, body, ok, err := f.next()
		if complete && !ok && err == nil || ok && !complete {
			t.Fatalf("complete says %v, next %v %v", complete, ok, err)
		}
		if ok || err != nil {
			return kind, body, err
		}
		if err := f.fill(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, nil, err
		}
	}
}

func TestSlotsAreMadeAsAskedFor(t *testing.T) {
	t.Parallel()
	for version, want := range map[int]bool{0: true, 150018: false, 169999: false, 170000: true, 180004: true} {
		made := createSlot(Config{Slot: "s", Failover: true}, version)
		if got := strings.HasSuffix(made, ", false, false, true)"); got != want {
			t.Errorf("version %d: %s", version, made)
		}
	}
	if made := createSlot(Config{Slot: "s"}, 180004); !strings.HasSuffix(made, ", false, false)") {
		t.Error(made)
	}
}

func TestSlotNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"outbox_cdc_1": true, "a": true, "": false, "A": false, "a-b": false, "a b": false, "a'b": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false, "ä": false,
	} {
		if err := checkSlotName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestStartCommandQuotes(t *testing.T) {
	t.Parallel()
	got := startCommand(Config{Slot: "ob", Publication: `it's "p"`, Binary: true})
	want := `START_REPLICATION SLOT "ob" LOGICAL 0/0 (proto_version '1', publication_names '"it''s ""p"""', binary 'true')`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRefusedConnectionsHaveAHint(t *testing.T) {
	t.Parallel()
	for code, c := range map[string]struct {
		permanent bool
		hint      string
	}{
		"28P01": {true, `ALTER ROLE "cdc" PASSWORD`},
		"28000": {true, "pg_hba.conf"},
		"3D000": {true, "database"},
		"42501": {true, `ALTER ROLE "cdc" REPLICATION`},
		"08P01": {true, "PgBouncer"},
		"53300": {false, "max_wal_senders"},
		"57P03": {false, ""},
		"XX000": {false, ""},
	} {
		e := connectError("connect", "cdc", &pgconn.PgError{Code: code})
		if e.Permanent != c.permanent || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: permanent %v, hint %q", code, e.Permanent, e.Hint)
		}
		if got, want := errors.Is(e, ErrShutdown), code == "57P03"; got != want {
			t.Errorf("%s: shutdown %v", code, got)
		}
	}
}

func TestStreamErrorsAreTold(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{
		"57P01": ErrShutdown, "57P03": ErrShutdown, "42704": ErrPublicationGone,
		"XX001": ErrUnreadable, "58P01": ErrUnreadable, "22P02": ErrUnreadable,
	} {
		if err := streamError("ob", &pgconn.PgError{Code: code}); !errors.Is(err, want) {
			t.Errorf("%s: %v", code, err)
		}
	}
	for _, code := range []string{"53200", "53100", "57014", "40001", "55000", "58030", ""} {
		if err := streamError("ob", &pgconn.PgError{Code: code}); errors.Is(err, ErrUnreadable) || errors.Is(err, ErrShutdown) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestReplaced(t *testing.T) {
	t.Parallel()
	type oids = map[string]uint32
	for _, c := range []struct {
		before, after oids
		want          string
	}{
		{nil, oids{"a.b": 5}, ""},
		{oids{"a.b": 5}, oids{"a.b": 5}, ""},
		{oids{"a.b": 5}, oids{}, ""}, // no longer configured
		{oids{"a.b": 0}, oids{"a.b": 5}, ""},
		{oids{"a.b": 5, "c.d": 6}, oids{"a.b": 5, "c.d": 7}, "table c.d is another table than before"},
		{oids{"a.b": 5}, oids{"a.b": 0}, "table a.b is gone"},
	} {
		if got := Replaced(c.before, c.after); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("Replaced(%v, %v) = %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after, want string }{
		{"", "", ""},
		{"", "1 5 7=9", ""},
		{"1 5 7=9", "1 5 7=9", ""},
		{"1 5 7=9", "1 5 7=9 8=10", ""},
		{"1 5 7=9", "", "was dropped"},
		{"1 5 7=9", "2 6 8=9", "was dropped and re-created"},
		{"1 5 7=9", "1 6 7=9", "was altered"},
		{"1 5 7=9 8=10", "1 5 7=9 11=10", "lost a table, even if it has it again"},
		{"1 5 7=9", "1 5", "lost a table, even if it has it again"},
		{"1", "1 5", "was altered"},
		{"1 5 !7=9", "1 5", ""},
		{"1 5 !7=9", "1 5 !8=10", "excludes a table that it had"},
		{"1 5", "1 5 !8=10", "excludes a table that it had"},
		{"1 5 7=9" + PassedOver, "1 5 7=9", "lost a table, even if it has it again"},
	} {
		if got := Damage(c.before, c.after); got != c.want {
			t.Errorf("Damage(%q, %q) = %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestParseHistory(t *testing.T) {
	t.Parallel()
	got, err := parseHistory("1\t0/1528C18\tno recovery target specified\n\n2\t1/FF\tx\n# 3\n")
	if err != nil || len(got) != 2 || got[1] != 0x1528C18 || got[2] != 1<<32|0xFF {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"x\t0/1\tr", "1\tzz\tr", "99999999999\t0/1\tr"} {
		if _, err := parseHistory(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// soundState returns a server on which nothing is wrong. Each case spoils one thing.
func soundState() (*State, *Config, outbox.Identity) {
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{ID: []string{"id"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}}}}
	s := &State{
		SystemID: "700", Timeline: 1, Version: 150018, WALLevel: "logical", Plugins: plugin, Database: "app", Insert: 1000,
		Slot:        Slot{Exists: true, Plugin: "pgoutput", Type: "logical", Database: "app", WALStatus: "reserved", Confirmed: 900, Restart: 800},
		Publication: Publication{Exists: true, Insert: true, ViaRoot: true, Ours: true, Mark: "1 5 7=9"},
		Tables:      []TableState{{Table: table, Exists: true, Kind: "r", Published: true, Columns: []string{"id", "payload"}}},
	}
	return s, &Config{Name: "cdc/1", Failover: true, Slot: "ob", Publication: "pub", Tables: []*outbox.Table{table}}, outbox.Identity{Slot: "ob", SystemID: "700", Timeline: 1, SlotPoint: 500, Publication: "1 5 7=9"}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil       func(s *State, known *outbox.Identity)
		cause       outbox.Cause
		reason      string
		slot        Action
		publication Action
		hint        string
		permanent   bool
	}{
		"sound":             {spoil: func(*State, *outbox.Identity) {}},
		"stopped clean":     {spoil: func(_ *State, k *outbox.Identity) { k.Stopped = 900 }},
		"slot fell back":    {spoil: func(s *State, k *outbox.Identity) { k.Stopped = 900; s.Slot.Confirmed = 850 }},
		"moved by others":   {spoil: func(_ *State, k *outbox.Identity) { k.Stopped = 899 }, cause: "slot", reason: "somebody else"},
		"no slot":           {spoil: func(s *State, _ *outbox.Identity) { s.Slot = Slot{} }, cause: "slot", reason: "does not exist", slot: Make},
		"new slot":          {spoil: func(_ *State, k *outbox.Identity) { *k = outbox.Identity{} }, cause: "slot", reason: "is new"},
		"another slot name": {spoil: func(_ *State, k *outbox.Identity) { k.Slot = "before" }, cause: "slot", reason: "is new"},
		"lost":              {spoil: func(s *State, _ *outbox.Identity) { s.Slot.WALStatus = "lost" }, cause: "slot", reason: "max_slot_wal_keep_size", slot: Remake},
		"invalidated":       {spoil: func(s *State, _ *outbox.Identity) { s.Slot.Invalidation, s.Slot.IdleTimeout = "idle_timeout", "1d" }, cause: "slot", reason: "idle_timeout: nobody read from it for idle_replication_slot_timeout (1d)", slot: Remake},
		"half made":         {spoil: func(s *State, _ *outbox.Identity) { s.Slot.Confirmed = 0 }, cause: "slot", reason: "never completed", slot: Remake},
		"future":            {spoil: func(s *State, _ *outbox.Identity) { s.Slot.Confirmed = 1001 }, cause: "slot", reason: "but the WAL ends at", slot: Remake},
		"at the end":        {spoil: func(s *State, _ *outbox.Identity) { s.Slot.Confirmed = 1000 }},
		"another cluster":   {spoil: func(s *State, _ *outbox.Identity) { s.SystemID = "701" }, cause: "slot", reason: "another database cluster", slot: Remake},
		"failover, carried": {spoil: func(s *State, _ *outbox.Identity) { s.Timeline = 2; s.Ended = map[uint32]outbox.LSN{1: 950} }},
		"failover, ahead":   {spoil: func(s *State, _ *outbox.Identity) { s.Timeline = 2; s.Ended = map[uint32]outbox.LSN{1: 850} }, cause: "slot", reason: "was left at 0/352", slot: Remake},
		"foreign timeline": {spoil: func(s *State, k *outbox.Identity) {
			s.Timeline = 2
			k.Timeline = 3
			s.Ended = map[uint32]outbox.LSN{1: 950}
		}, cause: "slot", reason: "does not descend", slot: Remake},
		"wal2json":                        {spoil: func(s *State, _ *outbox.Identity) { s.Slot.Plugin = "wal2json" }, cause: "slot", reason: "wal2json", hint: "pg_drop_replication_slot('ob')", permanent: true},
		"physical":                        {spoil: func(s *State, _ *outbox.Identity) { s.Slot.Type = "physical" }, cause: "slot", reason: "physical", hint: "another slot name", permanent: true},
		"other database":                  {spoil: func(s *State, _ *outbox.Identity) { s.Slot.Database = "x" }, cause: "slot", reason: "database x", hint: "another slot name", permanent: true},
		"two_phase":                       {spoil: func(s *State, _ *outbox.Identity) { s.Slot.TwoPhase = true }, cause: "slot", reason: "two_phase", hint: "another slot name", permanent: true},
		"standby":                         {spoil: func(s *State, _ *outbox.Identity) { s.InRecovery = true }, cause: "slot", reason: "standby", hint: "read-write"},
		"wal_level":                       {spoil: func(s *State, _ *outbox.Identity) { s.WALLevel = "replica" }, cause: "slot", reason: "wal_level is replica", hint: "ALTER SYSTEM SET wal_level", permanent: true},
		"the plugin is forbidden":         {spoil: func(s *State, _ *outbox.Identity) { s.Plugins = `test_decoding, "a, pgoutput"` }, cause: "slot", reason: "output_plugin_libraries", hint: `= pgoutput, "test_decoding", "a, pgoutput"; SELECT pg_reload_conf();`, permanent: true},
		"every plugin is forbidden":       {spoil: func(s *State, _ *outbox.Identity) { s.Plugins = "" }, cause: "slot", reason: "output_plugin_libraries is ''", hint: "= pgoutput; SELECT", permanent: true},
		"the plugin is quoted":            {spoil: func(s *State, _ *outbox.Identity) { s.Plugins = "x,\t\"pgoutput\" " }},
		"the first slot raises the level": {spoil: func(s *State, _ *outbox.Identity) { s.WALLevel, s.EffectiveLevel = "replica", "replica" }},
		"a slot has raised the level":     {spoil: func(s *State, _ *outbox.Identity) { s.WALLevel, s.EffectiveLevel = "replica", "logical" }},
		"no slot raises minimal":          {spoil: func(s *State, _ *outbox.Identity) { s.WALLevel, s.EffectiveLevel = "minimal", "minimal" }, cause: "slot", reason: "wal_level is minimal", hint: "ALTER SYSTEM SET wal_level", permanent: true},
		"no publication":                  {spoil: func(s *State, _ *outbox.Identity) { s.Publication = Publication{} }, cause: "publication", reason: "does not exist", slot: Remake, publication: Make},
		"no inserts":                      {spoil: func(s *State, _ *outbox.Identity) { s.Publication.Insert = false }, cause: "publication", reason: "inserts", hint: `ALTER PUBLICATION "pub" SET (publish = 'insert');`, permanent: true},
		"publication re-made":             {spoil: func(s *State, _ *outbox.Identity) { s.Publication.Mark = "2 6 8=9" }, cause: "publication", reason: "re-created: rows may have been passed over", slot: Remake},
		"publication grew":                {spoil: func(s *State, _ *outbox.Identity) { s.Publication.Mark = "1 5 7=9 8=10" }},
		"the slot's word first":           {spoil: func(s *State, _ *outbox.Identity) { s.Publication = Publication{}; s.Slot = Slot{} }, cause: "slot", reason: "does not exist", slot: Make, publication: Make},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, cfg, known := soundState()
			c.spoil(s, &known)
			v := Judge(s, cfg, known)
			if v.Cause != c.cause || !strings.Contains(v.Reason, c.reason) || v.Sound != (c.cause == "") {
				t.Errorf("sound %v, cause %q, reason %q", v.Sound, v.Cause, v.Reason)
			}
			if v.Slot != c.slot || v.Publication != c.publication {
				t.Errorf("slot %d, publication %d", v.Slot, v.Publication)
			}
			if (v.Err == nil) != (c.hint == "") {
				t.Fatalf("error %v", v.Err)
			}
			if v.Err != nil && (v.Err.Permanent != c.permanent || !strings.Contains(v.Err.Hint, c.hint)) {
				t.Errorf("permanent %v, hint %q", v.Err.Permanent, v.Err.Hint)
			}
		})
	}
}

// Before anything is made, init names the tables that inherit, as check does.
func TestInitRefusesTablesThatInherit(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	setup := Setup{Stream: "s", Config: Config{Slot: "s", Publication: "p", Tables: []*outbox.Table{table}}}
	state := State{Tables: []TableState{{Table: table, Exists: true, Kind: "r"}}}
	if _, err := InitPlan(&state, setup); err != nil {
		t.Fatal(err)
	}
	state.Tables[0].Children = "public.outbox_orders"
	if _, err := InitPlan(&state, setup); err == nil || !strings.Contains(err.Error(), "(public.outbox_orders)") || !strings.Contains(err.Error(), "NO INHERIT") {
		t.Errorf("%v", err)
	}
}

func TestJudgeTables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(s *State, table *TableState)
		reason string
		hint   string
		add    int
		warn   string
	}{
		"covered":  {spoil: func(*State, *TableState) {}},
		"lacking":  {spoil: func(_ *State, ts *TableState) { ts.Published = false }, reason: "lacks table public.outbox", hint: `ADD TABLE "public"."outbox"`, add: 1},
		"excluded": {spoil: func(s *State, ts *TableState) { ts.Published, s.Publication.AllTables = false, true }, reason: "excludes table public.outbox", hint: "SET ALL TABLES;"},
		"missing":  {spoil: func(_ *State, ts *TableState) { *ts = TableState{Table: ts.Table} }, reason: "does not exist"},
		"view":     {spoil: func(_ *State, ts *TableState) { ts.Kind = "v" }, reason: "not a table"},
		"unlogged": {spoil: func(_ *State, ts *TableState) { ts.Unlogged = true }, reason: "unlogged", hint: "SET LOGGED"},
		"leaf":     {spoil: func(_ *State, ts *TableState) { ts.PartitionOf = "public.parent"; ts.Published = false }, reason: "published as public.parent"},
		"children": {spoil: func(_ *State, ts *TableState) { ts.Children = "public.outbox_orders" }, reason: "inherit from public.outbox (public.outbox_orders)", hint: `NO INHERIT "public"."outbox"`},
		"leaf names": {spoil: func(s *State, ts *TableState) {
			ts.Kind, ts.Published, ts.PublishedPartitions, s.Publication.ViaRoot = "p", false, 3, false
		}, reason: "own names", hint: "publish_via_partition_root"},
		"root":         {spoil: func(_ *State, ts *TableState) { ts.Kind = "p" }},
		"root lacking": {spoil: func(_ *State, ts *TableState) { ts.Kind = "p"; ts.Published = false }, reason: "lacks table", add: 1},
		"columns":      {spoil: func(_ *State, ts *TableState) { ts.Columns = []string{"id"} }, reason: "lacks columns payload"},
		"stored":       {spoil: func(s *State, ts *TableState) { generated(s, ts, 180000, true) }, reason: `leaves out the generated column "payload"`, hint: `ALTER PUBLICATION "pub" SET (publish_generated_columns = stored);`},
		"stored, published": {spoil: func(s *State, ts *TableState) {
			generated(s, ts, 180000, true)
			ts.Columns, s.Publication.Stored = append(ts.Columns, "payload"), true
		}},
		"stored, not listed": {spoil: func(s *State, ts *TableState) {
			generated(s, ts, 180000, true)
			s.Publication.Stored = true
		}, reason: "lacks columns payload", hint: "SET TABLE"},
		"stored, 17":   {spoil: func(s *State, ts *TableState) { generated(s, ts, 170000, true) }, reason: "before PostgreSQL 18", hint: `ALTER "payload" DROP EXPRESSION`},
		"virtual":      {spoil: func(s *State, ts *TableState) { generated(s, ts, 180000, false) }, reason: "VIRTUAL", hint: "make it STORED"},
		"before 15":    {spoil: func(_ *State, ts *TableState) { ts.Columns = nil }},
		"row filter":   {spoil: func(_ *State, ts *TableState) { ts.RowFilter = "(id > 3)" }, warn: "WHERE (id > 3)"},
		"sync by star": {spoil: func(s *State, _ *TableState) { s.SyncStandbys = "ANY 1 (*)" }, warn: "synchronous"},
		"sync by name": {spoil: func(s *State, _ *TableState) { s.SyncStandbys = `FIRST 1 (a, "CDC/1")` }, warn: "synchronous"},
		"sync, others": {spoil: func(s *State, _ *TableState) { s.SyncStandbys = "FIRST 1 (a, cdc)" }},
		"no failover":  {spoil: func(s *State, _ *TableState) { s.Version = 170000 }, warn: "ALTER_REPLICATION_SLOT"},
		"updates":      {spoil: func(s *State, _ *TableState) { s.Publication.Update = true }, warn: "more than inserts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, cfg, known := soundState()
			c.spoil(s, &s.Tables[0])
			v := Judge(s, cfg, known)
			if !v.Sound {
				t.Errorf("unsound: %s", v.Reason)
			}
			if (len(v.Tables) == 1) != (c.reason != "") {
				t.Fatalf("tables %+v", v.Tables)
			}
			if c.reason != "" && (!strings.Contains(v.Tables[0].Reason, c.reason) || !strings.Contains(v.Tables[0].Hint, c.hint)) {
				t.Errorf("%+v", v.Tables[0])
			}
			if len(v.Add) != c.add {
				t.Errorf("to add: %v", v.Add)
			}
			if got := strings.Join(v.Warnings, ";"); (got == "") != (c.warn == "") || !strings.Contains(got, c.warn) {
				t.Errorf("warnings %q", got)
			}
		})
	}
}

// generated makes the payload a generated column that the publication does not publish.
func generated(s *State, ts *TableState, version int, stored bool) {
	s.Version, s.Slot.Failover = version, true
	ts.Generated = map[string]bool{"payload": stored, "other": true}
	ts.Columns = slices.DeleteFunc(slices.Clone(ts.Columns), func(column string) bool { return column == "payload" })
}
