// Package platform recognises managed services for PostgreSQL, and knows how settings are changed there if
// ALTER SYSTEM is refused or does not last. docs/platforms.md has the sources.
package platform

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Signs are the result of sql.Platform: roles, settings from the command line, and more.
type Signs struct {
	Roles         []string `json:"roles"`
	CommandLine   []string `json:"command_line"`
	Aurora        bool     `json:"aurora"`
	CloudNativePG bool     `json:"cloudnative_pg"`
}

// Platform is a managed service, or an operator for Kubernetes. nil: none was recognised.
type Platform struct {
	Name string
	// Failover says what happens to the slot at a failover.
	Failover string
	// Lists is where slots have to be listed so that the service keeps them, which the server does not show;
	// empty: nowhere.
	Lists string

	// is reports whether the signs are those of this platform.
	is func(s *Signs) bool
	// set is how a setting is changed; %s stands for NAME = VALUE.
	set string
	// own are settings that have another name there. whole are settings that are changed in another way, or
	// cannot be changed.
	own, whole map[string]string
	// grant lets a role replicate; %s stands for the role. Empty: by the attribute REPLICATION, as usual.
	grant string
	// restart is what has to be done after a change that needs a restart. Empty: set says it, or the service
	// restarts by itself.
	restart string
}

const swept = "where the slot is gone, the table is swept and nothing is lost"

// noKeepSize returns the hint for services where max_slot_wal_keep_size cannot be set.
func noKeepSize(name string) string {
	return name + " does not let max_slot_wal_keep_size be set: alert on its storage, and do not leave the stream stopped"
}

// platforms are tried in this order, because some have the signs of others too.
var platforms = []Platform{
	{
		Name: "Amazon Aurora", is: func(s *Signs) bool { return s.has("rds_superuser") && s.Aurora },
		set: "in the DB cluster parameter group: %s; a static parameter takes a reboot", own: map[string]string{"wal_level": "rds.logical_replication = 1"},
		grant: "GRANT rds_replication TO %s;", Failover: "a slot is the writer's alone, so expect a failover to end it; " + swept,
	},
	{
		Name: "Amazon RDS", is: func(s *Signs) bool { return s.has("rds_superuser") },
		set: "in the DB parameter group: %s; a static parameter takes a reboot", own: map[string]string{"wal_level": "rds.logical_replication = 1"},
		grant: "GRANT rds_replication TO %s;",
		Failover: "a Multi-AZ instance keeps its storage and the slot, a Multi-AZ cluster copies the slot to its readers. A read replica that is promoted has it from version 17 on, with failover_slot: true, sync_replication_slots = 1, " +
			"hot_standby_feedback = 1 and rds.logical_slot_sync_dbname; " + swept,
	},
	{
		Name: "AlloyDB", is: func(s *Signs) bool { return s.has("alloydbsuperuser") },
		set: "as a database flag of the instance: %s", own: map[string]string{"wal_level": "alloydb.logical_decoding = on"},
		whole:    map[string]string{"max_slot_wal_keep_size": noKeepSize("AlloyDB")},
		Failover: "what a failover does to the slot is not documented, so expect it to end it; " + swept,
	},
	{
		Name: "Cloud SQL", is: func(s *Signs) bool { return s.has("cloudsqlsuperuser") },
		set: "as a database flag (gcloud sql instances patch INSTANCE --database-flags=…, with every flag that is set): %s", own: map[string]string{"wal_level": "cloudsql.logical_decoding = on"},
		whole:    map[string]string{"max_slot_wal_keep_size": noKeepSize("Cloud SQL")},
		Failover: "high availability keeps the disk and the slot; a read replica that is promoted has none; " + swept,
	},
	{
		Name: "Azure Database for PostgreSQL", is: func(s *Signs) bool { return s.has("azure_pg_admin") },
		set: "as a server parameter (az postgres flexible-server parameter set --name … --value …): %s; a static one takes a restart",
		whole: map[string]string{
			"max_slot_wal_keep_size":     noKeepSize("Azure"),
			"synchronized_standby_slots": "Azure does not let synchronized_standby_slots be set",
		},
		Failover: "before version 17 the extension pg_failover_slots keeps the slot, with hot_standby_feedback = on; from 17 on failover_slot: true, with sync_replication_slots = on and " +
			"hot_standby_feedback = on; " + swept,
	},
	{
		Name: "Neon", is: func(s *Signs) bool { return s.has("neon_superuser") },
		set:      "users of Neon cannot change it, its support can: %s",
		whole:    map[string]string{"wal_level": "Neon sets it for the project (Settings, Logical Replication): wal_level = logical, which cannot be taken back"},
		Failover: "Neon removes a slot that nobody has read for about 40 hours while another one is read, and all slots of a branch that is restored; " + swept,
	},
	{
		Name: "Supabase", is: func(s *Signs) bool { return s.has("supabase_admin") },
		set: "by the CLI (supabase --experimental postgres-config update --config …): %s", Failover: swept,
	},
	{
		Name: "Crunchy Bridge", is: func(s *Signs) bool { return s.has("crunchy_read") && s.has("crunchy_write") },
		set: "as a configuration parameter of the cluster (dashboard, or cb config-param set): %s", restart: "restart the cluster", Failover: "from version 17 on the slot is kept with failover_slot: true; " + swept,
	},
	{
		Name: "CloudNativePG", is: func(s *Signs) bool { return s.has("streaming_replica") && s.CloudNativePG },
		set: "in the Cluster, spec.postgresql.parameters: %s", own: map[string]string{"wal_level": "wal_level = logical (the default)"},
		whole: map[string]string{
			"synchronized_standby_slots": "CloudNativePG sets synchronized_standby_slots to all other instances of the Cluster, where sync_replication_slots is on",
			"synchronous_standby_names":  "in the Cluster: spec.postgresql.synchronous",
		},
		Failover: "from version 17 on the slot is kept with failover_slot: true, spec.replicationSlots.highAvailability.synchronizeLogicalDecoding: true and sync_replication_slots and hot_standby_feedback on. " +
			"A primary that was demoted keeps its own slot of that name, and the slot is not kept there again until it is dropped on that instance (pg_drop_replication_slot); " + swept,
	},
	{
		Name: "Patroni", Lists: "slots of the dynamic configuration", is: func(s *Signs) bool {
			return slices.Contains(s.CommandLine, "cluster_name") && slices.Contains(s.CommandLine, "max_locks_per_transaction")
		},
		set: "by patronictl edit-config, postgresql.parameters: %s", restart: "patronictl restart CLUSTER",
		whole: map[string]string{"synchronized_standby_slots": "in each member's patroni.yml, postgresql.parameters: synchronized_standby_slots names the other members' slots. " +
			"One list for all members would stop the stream at the next switchover, since no member has a slot of its own"},
		Failover: "a slot is kept that is listed in slots of the dynamic configuration ({type: logical, database: …, plugin: pgoutput}), or from version 17 on one with failover_slot: true and " +
			"sync_replication_slots = on; " + swept,
	},
}

func (s *Signs) has(role string) bool { return slices.Contains(s.Roles, role) }

// Of returns the managed service with these signs; nil: none was recognised.
func Of(s Signs) *Platform {
	for i := range platforms {
		if platforms[i].is(&s) {
			return &platforms[i]
		}
	}
	return nil
}

// RestartToo ends a hint about a change that needs a restart.
const RestartToo = "  -- and restart PostgreSQL"

var alterSystem = regexp.MustCompile(`ALTER SYSTEM SET (\w+) = ([^;]+);( SELECT pg_reload_conf\(\);)?`)

// Replicates returns the statement that lets a role replicate.
func (p *Platform) Replicates(role string) string {
	if p == nil || p.grant == "" {
		return "ALTER ROLE " + role + " REPLICATION;"
	}
	return fmt.Sprintf(p.grant, role)
}

// ByMembership reports whether replicating needs membership in a role instead of the attribute REPLICATION.
func (p *Platform) ByMembership() bool { return p != nil && p.grant != "" }

// Hints returns the hints in the platform's own way of changing settings.
func (p *Platform) Hints(all ...string) []string {
	if p == nil {
		return all
	}
	var own []string
	for _, line := range all {
		hint, restarts := strings.CutSuffix(line, RestartToo)
		switch hint {
		case "SELECT pg_reload_conf();":
		case "restart PostgreSQL":
			restarts = true
		default:
			own = append(own, alterSystem.ReplaceAllStringFunc(hint, p.setting))
		}
		if restarts && p.restart != "" {
			own = append(own, p.restart)
		}
	}
	return own
}

func (p *Platform) setting(statement string) string {
	part := alterSystem.FindStringSubmatch(statement)
	if whole := p.whole[part[1]]; whole != "" {
		return whole
	}
	what := p.own[part[1]]
	if what == "" {
		what = part[1] + " = " + part[2]
	}
	return fmt.Sprintf(p.set, what)
}
