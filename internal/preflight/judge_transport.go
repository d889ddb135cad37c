package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/transport"
)

var transportChecks = []check{
	{
		name: "transport", judge: judgeTransport,
		looks:  "how the connections to PostgreSQL and Kafka are encrypted, also those to brokers that only other brokers name",
		levels: "WARN: a connection to another machine is not encrypted, or does not verify the server",
		why:    "who is between the two machines can read and change every row, and who can pretend to be the server gets the password",
	},
}

func judgeTransport(j *judgment) {
	j.judgePostgres("dsn", j.Stream.DSN)
	if j.Stream.Replication.DSN != j.Stream.DSN {
		j.judgePostgres("replication_dsn", j.Stream.Replication.DSN)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Stream.Kafka)) {
		cfg, subject := j.Stream.Kafka[name], "kafka "+name
		away := j.brokersAway(name)
		switch {
		case len(away) == 0:
			j.ok(subject, "its brokers are on this machine")
		case cfg.TLS == nil:
			j.warn(subject, "no TLS to "+strings.Join(away, ", "), "write tls: {} for this cluster, and the port of the brokers' listener with TLS")
		case cfg.TLS.Insecure:
			j.warn(subject, "insecure_skip_verify accepts any certificate", "remove insecure_skip_verify, and write ca_file for an authority of your own")
		default:
			j.ok(subject, "verified TLS to %s", strings.Join(away, ", "))
		}
	}
}

// brokersAway returns the brokers on other machines: those configured, and those that brokers advertise.
func (j *judgment) brokersAway(cluster string) []string {
	away := slices.Clone(j.Stream.Kafka[cluster].Brokers)
	for i := range j.Kafka {
		if c := &j.Kafka[i]; c.Name == cluster {
			for _, b := range c.Brokers {
				away = append(away, b.Address)
			}
		}
	}
	away = slices.DeleteFunc(away, transport.LoopbackAddress)
	slices.Sort(away)
	return slices.Compact(away)
}

func (j *judgment) judgePostgres(key, dsn string) {
	c, err := postgres.Parse(dsn)
	if err != nil || dsn == "" {
		return // the sessions' findings report the fault
	}
	const hint = "add sslmode=verify-full to it, and sslrootcert=FILE for an authority of your own"
	switch safety, host := transport.Postgres(c); safety {
	case transport.Open:
		j.warn(key, fmt.Sprintf("connections to %s may go without TLS", host), hint)
	case transport.Unverified:
		j.warn(key, fmt.Sprintf("connections to %s are encrypted, but the server's certificate or name is not verified", host), hint)
	case transport.Verified:
		j.ok(key, "verified TLS to %s", host)
	case transport.Local:
		j.ok(key, "%s is this machine", host)
	}
}
