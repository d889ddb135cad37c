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

// errForeignSchema: another role may have made schema outbox_cdc, in order to run its own code within an
// administrator's statements.
var errForeignSchema = errors.New("schema outbox_cdc is not as outbox-cdc made it")

// ErrNoSchema says that schema outbox_cdc does not exist. Another role could create it a moment later, so a superuser
// does not go on to read it.
var ErrNoSchema = errors.New("schema outbox_cdc is not there")

// TrustSchema returns an error if reading or writing schema outbox_cdc could run another role's code with the
// rights of an administrator or a superuser. Call it before any statement that names a table of the schema.
// Once the schema exists and is trusted, no other role can change it.
func TrustSchema(ctx context.Context, q postgres.DB) error {
	return trusted(texts(ctx, q, sql.SchemaTrust, false, true))
}

// TrustSchemaAsAdministrator is TrustSchema for the role that makes and removes objects. there: a missing
// schema is an error.
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

// Excess returns a phrase about rights that the session's role has beyond reading and marking rows; "" if it
// has none.
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
