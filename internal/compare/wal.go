package compare

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// walReader reads the WAL through a temporary slot of its own, which ends with
// its session: the stream's slot is left alone.
type walReader struct {
	conn        *pgx.Conn
	slot        string
	publication string
	decoder     *decoder.Decoder
	batch       decoder.Batch
}

// maxChanges ends a reading at the next end of a transaction.
const maxChanges = 20_000

// The slot is made in a session that is not in recovery, by a role with
// REPLICATION. It waits until every transaction that writes has ended.
const (
	makeSlotSQL = "SELECT pg_create_logical_replication_slot($1, 'pgoutput', true)"
	changesSQL  = `SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, $2,
    'proto_version', '1', 'publication_names', convert_from($3::bytea, 'UTF8'))`
	// The text comes as the database stores it: the server reads no further than the
	// first character that it cannot turn into UTF-8.
	storedSQL = "SELECT set_config('client_encoding', 'SQL_ASCII', true)"
)

func openLog(ctx context.Context, access postgres.Access, publication string, tables []*outbox.Table, partitions map[string]*outbox.Table) (*walReader, error) {
	access.Application, access.OwnSession = "outbox-cdc compare", true // a temporary slot goes with its session
	conn, err := access.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to read the log: %w", err)
	}
	l := &walReader{conn: conn, publication: publication, decoder: decoder.New(tables)}
	l.decoder.SetPartitions(partitions)
	if err := l.readCharset(ctx); err != nil {
		l.close()
		return nil, err
	}
	l.slot = "outbox_cdc_compare_" + strconv.FormatUint(uint64(conn.PgConn().PID()), 10)
	if _, err := postgres.On(conn).Exec(ctx, makeSlotSQL, l.slot); err != nil {
		l.close()
		return nil, fmt.Errorf("making the temporary slot %s: %w%s", l.slot, err, hint(err, conn.Config().User))
	}
	return l, nil
}

// readCharset finds out what the database's text is in.
func (l *walReader) readCharset(ctx context.Context) error {
	var encoding string
	if err := postgres.On(l.conn).QueryRow(ctx, "SELECT getdatabaseencoding()").Scan(&encoding); err != nil {
		return fmt.Errorf("reading the database's encoding: %w", err)
	}
	set, err := charset.Of(encoding)
	l.decoder.SetCharset(set)
	return err
}

// fix is what helps against an error, for people.
func hint(err error, user string) string {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return ""
	}
	switch server.Code {
	case pgerrcode.InsufficientPrivilege:
		return fmt.Sprintf(" (ALTER ROLE %s REPLICATION, or set postgres.replication_dsn to a role that has it)", sql.Identifier(user))
	case pgerrcode.ConfigurationLimitExceeded:
		return " (all replication slots are in use: raise max_replication_slots, or see outbox-cdc slots)"
	case pgerrcode.UndefinedObject:
		return " (outbox-cdc init makes the publication)"
	}
	return ""
}

// read gives every row that was committed since the last call.
func (l *walReader) read(ctx context.Context, each func(*outbox.Row)) error {
	for {
		l.batch.Reset()
		n := 0
		settings := tablesql.Settings{StatementTimeout: 5 * time.Minute}
		err := tablesql.Run(ctx, l.conn, settings.Step(nil), tablesql.Step{SQL: storedSQL}, tablesql.Step{
			SQL:  changesSQL,
			Args: tablesql.Texts([]byte(l.slot), strconv.AppendInt(nil, maxChanges, 10), fmt.Appendf(nil, `\x%x`, l.publication)),
			Each: func(row [][]byte) error { n++; return l.decode(row[0]) },
		})
		if err != nil {
			return fmt.Errorf("reading the log through publication %s: %w%s", l.publication, err, hint(err, l.conn.Config().User))
		}
		for e := range l.batch.All() {
			switch e.Kind {
			case decoder.Rows:
				for _, r := range e.Rows {
					each(r)
				}
			case decoder.TableBroken:
				return fmt.Errorf("table %s cannot be read as it is mapped (outbox-cdc config validate tells more): %w", e.Table, e.Err)
			default: // what bounds transactions, or is not ours
			}
		}
		if n < maxChanges {
			return nil
		}
	}
}

// decode takes a frame as bytea prints it: \x and hexadecimal digits.
func (l *walReader) decode(text []byte) error {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
		return errors.New("the server did not print a frame in hexadecimal")
	}
	frame := make([]byte, hex.DecodedLen(len(text)-2))
	if _, err := hex.Decode(frame, text[2:]); err != nil {
		return fmt.Errorf("reading a frame: %w", err)
	}
	return l.decoder.Decode(frame, &l.batch)
}

func (l *walReader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx) // the slot goes with the session
}
