package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

var roleChecks = []check{
	{
		name: "schema", judge: judgeSchema,
		looks:  "our own schema `outbox_cdc` (who leads, what is parked), and the role's privileges on it",
		levels: "FAIL: it is missing, or not writable",
		why:    "a leader that cannot write there does not start: what is left to the sweeper must be durable before the log is confirmed past it",
	},
	{
		name: "streaming-role", judge: judgeStreamingRole,
		looks:  "the role that streams: REPLICATION, and no more than that",
		levels: "FAIL: no REPLICATION. WARN: it is a superuser, the same role as the other one, or has privileges on the tables",
		why:    "anybody who has this role's password can read every published row and drop any idle slot of the server",
	},
	{
		name: "table-privileges", judge: judgePrivileges,
		looks:  "the role that reads and marks: SELECT on each table, UPDATE on the columns that hold the state, DELETE where rows are deleted",
		levels: "FAIL: something is missing",
		why:    "a table that refuses is left to the sweeper, and what the sweeper may not read is not delivered",
	},
	{
		name: "least-privilege", judge: judgeExcess,
		looks:  "whether that role may do more than it needs",
		levels: "WARN: superuser, owner, REPLICATION, BYPASSRLS, every table's reader or writer, INSERT, DELETE, TRUNCATE or UPDATE of other columns",
		why:    "this password is in a configuration file of a program that talks to the network",
	},
}

func judgeSchema(j *judgment) {
	r := j.Table.Role
	if r == nil {
		j.unseen("", j.missing("role"))
		return
	}
	role := sql.Identifier(r.User)
	switch {
	case r.Schema == nil || len(r.Ours) < 2:
		j.fail("schema outbox_cdc", "it is not there", "outbox-cdc init --stream "+j.Stream.Name).Fix = FixSchema
	case !*r.Schema || len(r.Lacking) > 0:
		lacking := slices.Clone(r.Lacking)
		if !*r.Schema {
			lacking = append(lacking, "USAGE of the schema")
		}
		j.fail("schema outbox_cdc", "role "+r.User+" lacks "+strings.Join(lacking, ", "),
			"GRANT USAGE ON SCHEMA outbox_cdc TO "+role+";", "GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_cdc.leader, outbox_cdc.park TO "+role+";")
	default:
		j.ok("schema outbox_cdc", "it is there, and role %s may write to it", r.User)
	}
}

func judgeStreamingRole(j *judgment) {
	s, r := &j.Streaming, j.Streaming.Role
	if r == nil {
		j.unseen("role "+s.User, j.missing("streaming role"))
		return
	}
	subject, role := "role "+r.User, sql.Identifier(r.User)
	p := j.Server.platform()
	switch {
	case r.Replication || r.Superuser, p.ByMembership() && s.Err == nil: // it is connected
	case p.ByMembership():
		j.fail(subject, "it may not replicate", p.Replicates(role))
		return
	default:
		j.fail(subject, "it has no REPLICATION", p.Replicates(role))
		return
	}
	var found, hint []string
	note := func(is bool, what, statement string) {
		if is {
			found, hint = append(found, what), append(hint, statement)
		}
	}
	same := j.Table.User == r.User
	const another = "CREATE ROLE outbox_cdc_stream LOGIN REPLICATION PASSWORD '…';  -- and name it in postgres.replication_dsn"
	note(r.Superuser, "it is a superuser", another)
	note(same, "it reads and marks as well", another)
	note(!same && !r.Superuser && len(r.Tables) > 0, "it has privileges on "+some(r.Tables)+", and needs none", revokeAll(j, r))
	if len(found) > 0 {
		j.warn(subject, strings.Join(found, "; "), slices.Compact(hint)...)
		return
	}
	j.ok(subject, "it may replicate, and has nothing on the tables")
}

func revokeAll(j *judgment, r *Role) string {
	var names []string
	for _, t := range j.Stream.Tables {
		if slices.Contains(r.Tables, t.String()) {
			names = append(names, quotedTable(t.Table))
		}
	}
	return "REVOKE ALL ON " + strings.Join(names, ", ") + " FROM " + sql.Identifier(r.User) + ";  -- as far as they were granted to it, not to PUBLIC or a group"
}

func judgePrivileges(j *judgment) {
	j.resolved(func(name string, t *TableFacts) {
		found := 0
		for _, f := range t.Inspection.Findings {
			if f.About == AboutPrivilege {
				j.fail(name, f.Problem, f.Hint+";")
				found++
			}
		}
		if found == 0 {
			j.ok(name, "role %s may read and mark it", j.Table.User)
		}
	})
}

func judgeExcess(j *judgment) {
	r := j.Table.Role
	if r == nil {
		j.unseen("role "+j.Table.User, j.missing("role"))
		return
	}
	subject, role := "role "+r.User, sql.Identifier(r.User)
	var found, hint []string
	note := func(is bool, what, statement string) {
		if is {
			found, hint = append(found, what), append(hint, statement)
		}
	}
	another := "CREATE ROLE outbox_cdc LOGIN PASSWORD '…';  -- name it in postgres.dsn; outbox-cdc init grants it what it needs"
	note(r.Superuser, "it is a superuser", another)
	if !r.Superuser {
		note(r.Replication, "it has REPLICATION", "ALTER ROLE "+role+" NOREPLICATION;  -- once postgres.replication_dsn names another role")
		note(r.BypassRLS, "it has BYPASSRLS", "ALTER ROLE "+role+" NOBYPASSRLS;")
		note(r.CreateRole || r.CreateDB, "it may create roles or databases", "ALTER ROLE "+role+" NOCREATEROLE NOCREATEDB;")
		note(r.ReadsAll, "it reads every table (pg_read_all_data)", "REVOKE pg_read_all_data FROM "+role+";")
		note(r.WritesAll, "it writes every table (pg_write_all_data)", "REVOKE pg_write_all_data FROM "+role+";")
	}
	if len(found) > 0 {
		j.warn(subject, strings.Join(found, "; "), hint...)
	} else {
		j.ok(subject, "it is a plain role")
	}
	if r.Superuser || r.ReadsAll || r.WritesAll {
		return // said
	}
	j.catalogued(func(name string, t *TableFacts, c *Catalogue) { judgeExcessOn(j, name, t, c, another) })
}

// judgeExcessOn looks at one table's privileges.
func judgeExcessOn(j *judgment, name string, t *TableFacts, c *Catalogue, another string) {
	m := &t.Table.Mapping
	if c.Owned && m.DropPartitions {
		j.ok(name, "role %s owns it, or is a member of its owner %s, as dropping its partitions needs", j.Table.User, c.Owner)
		return
	}
	if c.Owned {
		j.warn(name, "role "+j.Table.User+" owns it, or is a member of its owner "+c.Owner, another)
		return
	}
	deletes := m.Published.Removes() || m.Retention > 0 && !m.DropPartitions || m.RetentionUnsent > 0
	var excess []string
	for _, p := range c.Privileges {
		if p == "INSERT" || p == "TRUNCATE" || p == "DELETE" && !deletes {
			excess = append(excess, p)
		}
	}
	written := tablesql.Written(m)
	others := slices.DeleteFunc(slices.Clone(c.Updatable), func(column string) bool { return slices.Contains(written, column) })
	role := sql.Identifier(j.Table.User)
	var found, hint []string
	if len(excess) > 0 {
		found = append(found, strings.Join(excess, ", "))
		hint = append(hint, fmt.Sprintf("REVOKE %s ON %s FROM %s;", strings.Join(excess, ", "), quotedTable(t.Table.Table), role))
	}
	switch {
	case len(others) > 0 && slices.Contains(c.Privileges, "UPDATE"):
		found = append(found, "UPDATE of the whole table")
		hint = append(hint, fmt.Sprintf("REVOKE UPDATE ON %s FROM %s;", quotedTable(t.Table.Table), role),
			fmt.Sprintf("GRANT UPDATE (%s) ON %s TO %s;", quotedNames(written), quotedTable(t.Table.Table), role))
	case len(others) > 0:
		found = append(found, "UPDATE of "+some(others))
		hint = append(hint, fmt.Sprintf("REVOKE UPDATE (%s) ON %s FROM %s;", quotedNames(others), quotedTable(t.Table.Table), role))
	}
	if len(found) > 0 {
		j.warn(name, "role "+j.Table.User+" has more than it needs: "+strings.Join(found, "; "), hint...)
		return
	}
	j.ok(name, "role %s has what it needs and no more", j.Table.User)
}
