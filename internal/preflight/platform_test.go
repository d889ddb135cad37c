package preflight

import (
	"errors"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/platform"
)

// What is documented of the roles and settings of each platform, and what check then says
// of the settings that a stream needs.
func TestPlatforms(t *testing.T) {
	roles := func(names ...string) func(*Server) { return func(s *Server) { s.Signs.Roles = names } }
	for name, c := range map[string]struct {
		facts    func(*Server)
		wal      string // the hint of wal_level
		keep     string // that of max_slot_wal_keep_size begins so
		failover string // is said of slots
	}{
		"Amazon RDS":    {roles("rds_superuser"), "in the DB parameter group: rds.logical_replication = 1; a static parameter takes a reboot", "in the DB parameter group: max_slot_wal_keep_size = ", "rds.logical_slot_sync_dbname"},
		"Amazon Aurora": {func(s *Server) { s.Signs = platform.Signs{Roles: []string{"rds_superuser"}, Aurora: true} }, "in the DB cluster parameter group: rds.logical_replication = 1; a static parameter takes a reboot", "in the DB cluster parameter group: max_slot", "the table is swept"},
		"AlloyDB":       {roles("alloydbsuperuser", "cloudsqlsuperuser"), "as a database flag of the instance: alloydb.logical_decoding = on", "AlloyDB does not let max_slot_wal_keep_size be set", "the table is swept"},
		"Cloud SQL":     {roles("cloudsqlsuperuser"), "as a database flag (gcloud sql instances patch INSTANCE --database-flags=…, with every flag that is set): cloudsql.logical_decoding = on", "Cloud SQL does not let max_slot_wal_keep_size be set", "keeps the disk"},
		"Azure Database for PostgreSQL": {
			roles("azure_pg_admin"), "as a server parameter (az postgres flexible-server parameter set --name … --value …): wal_level = 'logical'; a static one takes a restart",
			"Azure does not let max_slot_wal_keep_size be set", "pg_failover_slots",
		},
		"Neon":           {roles("neon_superuser"), "Neon sets it for the project (Settings, Logical Replication): wal_level = logical, which cannot be taken back", "users of Neon cannot change it, its support can: max_slot", "about 40 hours"},
		"Supabase":       {roles("supabase_admin"), "by the CLI (supabase --experimental postgres-config update --config …): wal_level = 'logical'", "by the CLI (supabase --experimental", "the table is swept"},
		"Crunchy Bridge": {roles("crunchy_read", "crunchy_write"), "as a configuration parameter of the cluster (dashboard, or cb config-param set): wal_level = 'logical' | restart the cluster", "as a configuration parameter", "failover_slot: true"},
		"CloudNativePG": {
			func(s *Server) { s.Signs = platform.Signs{Roles: []string{"streaming_replica"}, CloudNativePG: true} },
			"in the Cluster, spec.postgresql.parameters: wal_level = logical (the default)", "in the Cluster, spec.postgresql.parameters: max_slot", "until it is dropped on that instance",
		},
		"Patroni": {
			func(s *Server) {
				s.Signs.CommandLine = []string{"cluster_name", "max_connections", "max_locks_per_transaction", "wal_level"}
			},
			"by patronictl edit-config, postgresql.parameters: wal_level = 'logical' | patronictl restart CLUSTER", "by patronictl edit-config, postgresql.parameters: max_slot", "slots of the dynamic configuration",
		},
		"": {
			func(s *Server) {
				s.Signs.Roles, s.Signs.CommandLine = []string{"streaming_replica"}, []string{"cluster_name"}
			},
			"ALTER SYSTEM SET wal_level = 'logical'; | restart PostgreSQL", "ALTER SYSTEM SET max_slot_wal_keep_size", "nothing tells that somebody else",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound()
			c.facts(f.Server)
			f.State.WALLevel = "replica"
			f.Server.Settings["max_slot_wal_keep_size"] = Setting{Value: "-1"}
			found := map[string]Finding{}
			for _, one := range Judge(f) {
				found[one.Check] = one
				for _, hint := range one.Hints {
					if name != "" && (strings.Contains(hint, "ALTER SYSTEM") || strings.Contains(hint, "pg_reload_conf") || strings.Contains(hint, "restart PostgreSQL")) {
						t.Errorf("%s: %s", one.Check, hint)
					}
				}
			}
			if said := found["platform"].Found; !strings.HasPrefix(said, name) || !strings.Contains(said, c.failover) {
				t.Error(said)
			}
			if hint := strings.Join(found["wal-level"].Hints, " | "); hint != c.wal {
				t.Error(hint)
			}
			if hints := found["wal-keep-size"].Hints; len(hints) == 0 || !strings.HasPrefix(hints[0], c.keep) {
				t.Error(hints)
			}
		})
	}
}

// On RDS, a role replicates by its membership in a role, not by the attribute REPLICATION. A role that is
// connected has that membership.
func TestRolesThatReplicateOnRDS(t *testing.T) {
	f := sound()
	f.Server.Signs.Roles = []string{"rds_superuser"}
	f.Streaming.Role.Replication = false
	streaming := func() Finding {
		for _, one := range Judge(f) {
			if one.Check == "streaming-role" {
				return one
			}
		}
		return Finding{}
	}
	if got := streaming(); got.Level != OK {
		t.Errorf("%+v", got)
	}
	f.Streaming.Err = errors.New("permission denied to start WAL sender")
	if got := streaming(); got.Level != Fail || !strings.HasPrefix(strings.Join(got.Hints, ""), "GRANT rds_replication TO ") {
		t.Errorf("%+v", got)
	}
}
