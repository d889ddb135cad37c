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
		name: "schema", needs: []string{"role"}, judge: judgeSchema,
		looks:  "our own schema `outbox_cdc` (who leads, what is parked), and the role's privileges on it",
		levels: "FAIL: it is missing, or not writable",
		why:    "a leader that cannot write there does not start: what is left to the sweeper must be durable before the WAL is confirmed past it",
	},
	{
		name: "streaming-role", judge: judgeStreamingRole,
		looks:  "the role that streams: REPLICATION, and no more than that",
		levels: "FAIL: no REPLICATION. WARN: it is a superuser, also reads and marks, or has privileges on the tables",
		why:    "anybody who has this role's password can read every published row and drop any idle slot of the server",
	},
	{
		name: "table-privileges", judge: eachInspected(judgePrivileges),
		looks:  "the role that reads and marks: SELECT on each table, UPDATE on the columns that hold the state, DELETE where rows are deleted",
		levels: "FAIL: something is missing",
		why:    "a table that refuses is left to the sweeper, and what the sweeper may not read is not delivered",
	},
	{
		name: "least-privilege", judge: judgeExcess,
		looks:  "whether the role that reads and marks may do more than it needs",
		levels: "WARN: superuser, owner, REPLICATION, BYPASSRLS, every table's reader or writer, INSERT, DELETE, TRUNCATE or UPDATE of other columns",
		why:    "this password is in a configuration file of a program that talks to the network",
	},
}

func judgeSchema(j *judgment) {
	r := j.Table.Role
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
	same := j.Table.User == r.User
	const another = "CREATE ROLE outbox_cdc_stream LOGIN REPLICATION PASSWORD '…';  -- and name it in postgres.replication_dsn"
	var tables []string
	for _, t := range j.Stream.Tables {
		if slices.Contains(r.Tables, t.String()) {
			tables = append(tables, quotedTable(t.Table))
		}
	}
	revoke := "REVOKE ALL ON " + strings.Join(tables, ", ") + " FROM " + role + ";  -- as far as they were granted to it, not to PUBLIC or a group"
	var excess notes
	excess.add(r.Superuser, "it is a superuser", another)
	excess.add(same, "it reads and marks as well", another)
	excess.add(!same && !r.Superuser && len(r.Tables) > 0, "it has privileges on "+some(r.Tables)+", and needs none", revoke)
	j.warnOf(subject, "", excess)
	j.otherwise(subject, "it may replicate, and has nothing on the tables")
}

func judgePrivileges(j *judgment, name string, t *TableFacts) {
	j.faults(name, t, AboutPrivilege)
	j.otherwise(name, "role %s may read and mark it", j.Table.User)
}

const anotherRole = "CREATE ROLE outbox_cdc LOGIN PASSWORD '…';  -- name it in postgres.dsn; outbox-cdc init grants it what it needs"

func judgeExcess(j *judgment) {
	r := j.Table.Role
	if r == nil {
		j.unseen("role "+j.Table.User, j.missing("role"))
		return
	}
	subject, role := "role "+r.User, sql.Identifier(r.User)
	var excess notes
	excess.add(r.Superuser, "it is a superuser", anotherRole)
	if !r.Superuser {
		excess.add(r.Replication, "it has REPLICATION", "ALTER ROLE "+role+" NOREPLICATION;  -- once postgres.replication_dsn names another role")
		excess.add(r.BypassRLS, "it has BYPASSRLS", "ALTER ROLE "+role+" NOBYPASSRLS;")
		excess.add(r.CreateRole || r.CreateDB, "it may create roles or databases", "ALTER ROLE "+role+" NOCREATEROLE NOCREATEDB;")
		excess.add(r.ReadsAll, "it reads every table (pg_read_all_data)", "REVOKE pg_read_all_data FROM "+role+";")
		excess.add(r.WritesAll, "it writes every table (pg_write_all_data)", "REVOKE pg_write_all_data FROM "+role+";")
	}
	j.warnOf(subject, "", excess)
	j.otherwise(subject, "it is a plain role")
	if r.Superuser || r.ReadsAll || r.WritesAll {
		return // reported already
	}
	eachDetailed(judgeExcessOn)(j)
}

func judgeExcessOn(j *judgment, name string, t *TableFacts, d *Details) {
	m := &t.Table.Mapping
	if d.Owned && m.DropPartitions {
		j.ok(name, "role %s owns it, or is a member of its owner %s, as dropping its partitions needs", j.Table.User, d.Owner)
		return
	}
	if d.Owned {
		j.warn(name, "role "+j.Table.User+" owns it, or is a member of its owner "+d.Owner, anotherRole)
		return
	}
	deletes := m.Published.Removes() || m.Retention > 0 && !m.DropPartitions || m.RetentionUnsent > 0
	var whole []string
	for _, p := range d.Privileges {
		if p == "INSERT" || p == "TRUNCATE" || p == "DELETE" && !deletes {
			whole = append(whole, p)
		}
	}
	written := tablesql.Written(m)
	others := slices.DeleteFunc(slices.Clone(d.Updatable), func(column string) bool { return slices.Contains(written, column) })
	updates := slices.Contains(d.Privileges, "UPDATE")
	table, role := quotedTable(t.Table.Table), sql.Identifier(j.Table.User)
	var excess notes
	excess.add(len(whole) > 0, strings.Join(whole, ", "), fmt.Sprintf("REVOKE %s ON %s FROM %s;", strings.Join(whole, ", "), table, role))
	excess.add(len(others) > 0 && updates, "UPDATE of the whole table",
		fmt.Sprintf("REVOKE UPDATE ON %s FROM %s;", table, role), fmt.Sprintf("GRANT UPDATE (%s) ON %s TO %s;", quotedNames(written), table, role))
	excess.add(len(others) > 0 && !updates, "UPDATE of "+some(others), fmt.Sprintf("REVOKE UPDATE (%s) ON %s FROM %s;", quotedNames(others), table, role))
	j.warnOf(name, "role "+j.Table.User+" has more than it needs: ", excess)
	j.otherwise(name, "role %s has what it needs and no more", j.Table.User)
}
