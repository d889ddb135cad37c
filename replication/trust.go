package replication

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// errForeignSchema: somebody may have made schema outbox_cdc so that an
// administrator's statements run their code.
var errForeignSchema = errors.New("schema outbox_cdc is not as outbox-cdc made it")

// ErrNoSchema says that schema outbox_cdc is not there. One that is not there yet can be
// anybody's a moment later, so a superuser does not go on to read it.
var ErrNoSchema = errors.New("schema outbox_cdc is not there")

// TrustSchema refuses schema outbox_cdc where reading or writing it would run
// somebody else's code with the rights of an administrator or a superuser. Ask
// before any statement that names one of its tables: once it is there and is trusted, nobody
// else can change it.
func TrustSchema(ctx context.Context, q postgres.DB) error {
	return trusted(texts(ctx, q, sql.SchemaTrust, false, true))
}

// TrustSchemaAsAdministrator is TrustSchema for the role that makes and removes things.
// there: the schema has to be there.
func TrustSchemaAsAdministrator(ctx context.Context, pg *pgconn.PgConn, there bool) error {
	return trusted(bindAndRun(ctx, pg, sql.SchemaTrust, true, there))
}

func trusted(reasons [][]string, err error) error {
	const what = "look whether schema outbox_cdc can be trusted"
	if err != nil {
		return &postgres.Error{What: what, Err: err}
	}
	if len(reasons) == 0 {
		return nil
	}
	if reasons[0][0] == "missing" {
		return &postgres.Error{Permanent: true, What: what, Err: ErrNoSchema, Hint: "run outbox-cdc init"}
	}
	words := make([]string, len(reasons))
	for i := range reasons {
		words[i] = reasons[i][0]
	}
	return &postgres.Error{
		Permanent: true, What: what + ": " + strings.Join(words, "; "), Err: errForeignSchema,
		Hint: "nothing was touched; connect as the role that the schema belongs to, or look who made it, drop it, and run outbox-cdc init",
	}
}

// Excess says in words which rights the role of a session has beyond what it
// needs to read and mark rows, or nothing.
func Excess(ctx context.Context, q postgres.DB, tables []*outbox.Table) (string, error) {
	names, _ := json.Marshal(namesOf(tables)) // texts
	found, err := texts(ctx, q, sql.RoleRights, string(names))
	if err != nil || len(found) != 1 {
		return "", err
	}
	switch role, super, owned := found[0][0], found[0][1], found[0][2]; {
	case super == "true":
		return "role " + role + " is a superuser", nil
	case owned != "":
		return "role " + role + " owns " + owned, nil
	}
	return "", nil
}
