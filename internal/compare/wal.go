package compare

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// walReader reads the WAL through a temporary slot of its own, which ends with its session. The stream's slot
// is not used.
type walReader struct {
	conn        *pgx.Conn
	slot        string
	publication string
	decoder     *decoder.Decoder
	batch       decoder.Batch
	maxFrame    int                 // longest message in bytes that is kept whole
	long        *replication.Change // the message that is being read, or nil
}

// maxChanges ends a read at the next end of a transaction.
const maxChanges = 20_000

// The slot is made in a session that is not in recovery, by a role with REPLICATION. Making it waits until
// every writing transaction has ended.
const (
	makeSlotSQL = "SELECT pg_create_logical_replication_slot($1, 'pgoutput', true)"
	// A message comes in pieces, each with the message's length.
	changesSQL = `SELECT length(m.data), substr(m.data, at, 1048576)
FROM pg_logical_slot_get_binary_changes($1, NULL, $2,
    'proto_version', '1', 'publication_names', convert_from($3::bytea, 'UTF8')) m
CROSS JOIN LATERAL generate_series(1, length(m.data), 1048576) at`
	pieceBytes = 1 << 20
	// The text comes in the database's encoding. Otherwise the server would stop at the first character that
	// it cannot convert to UTF-8.
	storedSQL = "SELECT set_config('client_encoding', 'SQL_ASCII', true)"
)

func openWAL(ctx context.Context, cfg *Config) (*walReader, error) {
	access := cfg.Access
	access.Application, access.OwnSession = "outbox-cdc compare", true // a temporary slot ends with its session
	conn, err := access.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to read the WAL: %w", err)
	}
	l := &walReader{conn: conn, publication: cfg.Publication, decoder: decoder.New(cfg.Tables), maxFrame: cfg.MaxFrame}
	l.decoder.SetPartitions(cfg.Partitions)
	var encoding string
	if err := postgres.On(conn).QueryRow(ctx, "SELECT getdatabaseencoding()").Scan(&encoding); err != nil {
		l.close()
		return nil, fmt.Errorf("reading the database's encoding: %w", err)
	}
	set, err := charset.Of(encoding)
	if err != nil {
		l.close()
		return nil, err
	}
	l.decoder.SetCharset(set)
	l.slot = "outbox_cdc_compare_" + strconv.FormatUint(uint64(conn.PgConn().PID()), 10)
	if _, err := postgres.On(conn).Exec(ctx, makeSlotSQL, l.slot); err != nil {
		l.close()
		return nil, &postgres.Error{What: "make the temporary slot " + l.slot, Hint: hint(err, conn.Config().User), Err: err}
	}
	return l, nil
}

// hint returns what to do about an error, or "".
func hint(err error, user string) string {
	switch postgres.Code(err) {
	case pgerrcode.InsufficientPrivilege:
		return fmt.Sprintf("ALTER ROLE %s REPLICATION, or set postgres.replication_dsn to a role that has it", sql.Identifier(user))
	case pgerrcode.ConfigurationLimitExceeded:
		return "all replication slots are in use: raise max_replication_slots, or see outbox-cdc slots"
	case pgerrcode.UndefinedObject:
		return "outbox-cdc init makes the publication"
	}
	return ""
}

// read passes on every row that was committed since the last call.
func (l *walReader) read(ctx context.Context, each func(*outbox.Row)) error {
	for {
		l.batch.Reset()
		l.long = nil
		n := 0
		settings := tablesql.Settings{StatementTimeout: 5 * time.Minute}
		err := tablesql.Run(ctx, l.conn, settings.Step(nil), tablesql.Step{SQL: storedSQL}, tablesql.Step{
			SQL:  changesSQL,
			Args: tablesql.Texts([]byte(l.slot), strconv.AppendInt(nil, maxChanges, 10), fmt.Appendf(nil, `\x%x`, l.publication)),
			Each: func(row [][]byte) error { return l.piece(row[0], row[1], &n) },
		})
		if err != nil {
			return &postgres.Error{What: "read the WAL through publication " + l.publication, Hint: hint(err, l.conn.Config().User), Err: err}
		}
		for e := range l.batch.All() {
			switch e.Kind {
			case decoder.Rows:
				for _, r := range e.Rows {
					each(r)
				}
			case decoder.TableBroken:
				return fmt.Errorf("table %s cannot be read as it is mapped (outbox-cdc config validate tells more): %w", e.Table, e.Err)
			default: // a transaction's beginning or end, or a row that is not ours
			}
		}
		if n < maxChanges {
			return nil
		}
	}
}

// piece takes a piece of a message. With the last piece it counts the message.
func (l *walReader) piece(size, text []byte, n *int) error {
	digits, ok := bytes.CutPrefix(text, []byte(`\x`)) // in the form in which bytea is printed
	if !ok {
		return errors.New("the server did not print a message in hexadecimal")
	}
	piece, err := hex.AppendDecode(nil, digits)
	if err != nil {
		return fmt.Errorf("reading a message: %w", err)
	}
	length, err := strconv.Atoi(string(size))
	if err != nil {
		return fmt.Errorf("reading the length of a message: %w", err)
	}
	if length > pieceBytes {
		if l.long == nil {
			l.long = replication.NewChange(length, l.maxFrame)
		}
		whole, ok, err := l.long.Add(piece)
		if err != nil || !ok {
			return err
		}
		piece, l.long = whole, nil
	}
	*n++
	return l.decoder.Decode(piece, &l.batch)
}

func (l *walReader) close() { postgres.HangUp(l.conn) } // the slot goes with the session
