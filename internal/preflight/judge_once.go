package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/journal"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// onceChecks are for streams with delivery: exactly_once. For other streams they report nothing.
var onceChecks = []check{
	{
		name: "tally", once: true, needs: []string{"role"}, judge: judgeTally,
		looks:  "with `delivery: exactly_once`: the tables in schema `outbox_cdc` that say which published rows are marked, and the role's privileges on them",
		levels: "FAIL: they are missing, or not writable",
		why:    "a row is marked in the transaction that notes it there, so without these tables nothing is published",
	},
	{
		name: "open-tally", judge: judgeOpenTally,
		looks: "open tallies, under which rows may be published and not marked: the stream's own, and those of streams that had its tables before",
		levels: "FAIL: a stream that does not recover it, or that delivered at least once or with another transactional id, was not stopped cleanly, so this one is refused. WARN: the same while it runs; or nobody leads, and the stream's own is open: " +
			"it was killed. OK: a leader has it open, as always",
		why: "only a start with `delivery: exactly_once` finds out what was published; any other would publish such rows again",
	},
	{
		name: "journal", once: true, judge: eachCluster(judgeJournal),
		looks: "with `delivery: exactly_once`: the topic that names what was published. One partition, `cleanup.policy=delete`, `retention.ms=-1`, enough `retention.bytes`, no compression, " +
			"no unclean leader election, replicas as for other topics; WRITE and READ on it",
		levels: "FAIL: it is missing, is another topic than the tally's, has other settings, or may not be used. WARN: it has one replica, `min.insync.replicas` is 1, or its settings may not be read",
		why:    "after a crash the journal tells which rows were published. A record that it has lost is a row that nobody can tell from one that was not, so the stream refuses to start",
	},
	{
		name: "transactions", once: true, judge: eachCluster(judgeTransactions),
		looks:  "with `delivery: exactly_once`: `fencing: required`, brokers of Kafka 3.6 or later, `transaction.max.timeout.ms`, and the replication of Kafka's own transaction log as far as it may be read",
		levels: "FAIL: older brokers, a shorter limit than `transaction.timeout`, or fencing that is not required. WARN: a limit below eleven minutes; a transaction log with one replica, or with `min.insync.replicas` 1",
		why:    "brokers of Kafka 4.3 and 4.4 can lose the end of a transaction, which is brought about in one with a timeout of up to eleven minutes; older brokers can be left with a transaction that nobody ends, behind which consumers see nothing; with a short limit they refuse to begin one",
	},
}

func judgeTally(j *judgment) {
	r := j.Table.Role
	const tables = "outbox_cdc.tally, outbox_cdc.tally_unit, outbox_cdc.tally_left"
	switch {
	case len(r.Tally) < 3:
		j.fail("tables of the tally", "they are not there", "outbox-cdc init --stream "+j.Stream.Name).Fix = FixSchema
	case len(r.TallyLacking) > 0:
		j.fail("tables of the tally", "role "+r.User+" lacks "+strings.Join(r.TallyLacking, ", "),
			"GRANT SELECT, INSERT, UPDATE, DELETE ON "+tables+" TO "+sql.Identifier(r.User)+";").Fix = FixSchema
	default:
		j.ok("tables of the tally", "they are there, and role %s may write to them", r.User)
	}
}

func judgeOpenTally(j *judgment) {
	switch once := j.Stream.Once != nil; {
	case j.Missing["tallies"] != "":
		j.unseen("", j.Missing["tallies"])
	case once && j.Table.Role == nil:
		j.unseen("", j.missing("role"))
	case once && len(j.Tallies) == 0:
		j.ok("", "none: the stream has published nothing exactly once yet")
	}
	for _, o := range j.Orphans {
		j.fail("table "+o.Table, "stream "+o.Stream+" delivered its rows to Kafka cluster "+o.Cluster+" exactly once and was not stopped cleanly, so some may be published and not marked: run refuses the stream",
			"start stream "+o.Stream+" once more with delivery: exactly_once, its tables and that cluster, and stop it with SIGTERM")
	}
	led := j.Leader != nil && j.Leader.PID != ""
	for i := range j.Unclean {
		judgeUnclean(j, &j.Unclean[i], led)
	}
	for _, t := range j.Tallies {
		subject := "cluster " + t.Cluster
		switch {
		case !t.Open:
			j.ok(subject, "closed: all that was published is marked")
		case led:
			j.ok(subject, "open, as always while the stream runs; %s left to be marked", count(int(t.Left), "published row is", "published rows are"))
		default:
			j.warn(subject, "open, and nobody leads: the stream was killed, or stopped before everything was marked",
				"start it with delivery: exactly_once and the same tables and mapping, as it was: it finds out what was published; only after a clean stop (SIGTERM) may mode, tables or mapping change")
		}
	}
}

// judgeUnclean reports what a start would refuse after a leadership that did not end cleanly, or that goes on
// (led).
func judgeUnclean(j *judgment, was *statestore.Unclean, led bool) {
	say, state := j.fail, "was not stopped cleanly, so run refuses the change"
	if led {
		say, state = j.warn, "runs: after a kill the change is refused"
	}
	hint := "stop stream " + was.Stream + " as it was with SIGTERM, and then change it; if it does not run, start it so once more before"
	if was.Delivery == "at_least_once" {
		say("table "+was.Table, "stream "+was.Stream+" delivers its rows at least once, and "+state, hint)
		return
	}
	for _, t := range j.Tallies {
		id, now := was.IDs[t.Cluster], j.Stream.Kafka[t.Cluster].TransactionalID
		if was.Stream == j.Stream.Name && t.Open && id != "" && id != now {
			say("cluster "+t.Cluster, "the stream publishes with transactional id "+id+", not "+now+", and "+state, hint)
		}
	}
}

func judgeJournal(j *judgment, c *ClusterFacts) {
	topic := j.Stream.Once.Journals[c.Name]
	subject := "topic " + topic.Name + " on " + c.Name
	switch t := c.Journal; {
	case t == nil:
		j.unseen(subject, "no broker told of it")
	case t.Err == sink.UnknownTopic:
		j.fail(subject, "it does not exist, or we may not see it", "outbox-cdc init --kafka --stream "+j.Stream.Name, "or: "+topic.Command(c.Bootstrap, journal.Replicas(c.advertised())))
	case t.Err != sink.NoError || t.Leaderless > 0:
		judgeTopic(j, subject, c, t)
	default:
		judgeJournalTopic(j, subject, c, topic)
	}
}

// replication returns the options for a new topic that the cluster has enough brokers for.
func (c *ClusterFacts) replication() string {
	if n := journal.Replicas(c.advertised()); n < 3 {
		return fmt.Sprintf("--replication-factor %d", n)
	}
	return "--replication-factor 3 --config min.insync.replicas=2"
}

// advertised counts the brokers in the cluster's metadata.
func (c *ClusterFacts) advertised() (n int) {
	for _, b := range c.Brokers {
		if b.Advertised {
			n++
		}
	}
	return n
}

func judgeJournalTopic(j *judgment, subject string, c *ClusterFacts, topic journal.Topic) {
	t := c.Journal
	switch {
	case t.Partitions != 1:
		j.fail(subject, fmt.Sprintf("it has %d partitions, and must have 1", t.Partitions), "journal: {topic: …}  # another name, or delete this topic if nothing uses it")
		return
	case j.foreign(c):
		j.fail(subject, "it is not the journal that the database knows, so run refuses to start: it was deleted and made again, or journal.topic or the brokers were changed",
			"journal.topic and brokers as before; or, if the journal of before is gone, outbox-cdc journal reset --stream "+j.Stream.Name+", after which rows that are not marked yet are published once more")
		return
	case t.OperationsKnown && !(t.may(mayWrite) && t.may(mayRead)):
		j.fail(subject, "we may not WRITE to it and READ it", c.acl("Write", "--topic "+t.Name), c.acl("Read", "--topic "+t.Name))
		return
	case t.Settings == nil:
		j.warn(subject, "its settings may not be read (DESCRIBE_CONFIGS)", c.acl("DescribeConfigs", "--topic "+t.Name))
		return
	}
	if wrong := journalFaults(c, t, topic); len(wrong.found) > 0 {
		j.fail(subject, strings.Join(wrong.found, "; "), wrong.hints...)
		return
	}
	least := t.Settings.number("min.insync.replicas")
	found := fmt.Sprintf("1 partition, %s, %d in sync, min.insync.replicas %d", count(t.Replicas, "replica", "replicas"), t.InSync, least)
	switch {
	case least > int64(t.InSync):
		j.fail(subject, found+": it takes no records", c.tool("kafka-topics.sh", "--describe --topic "+t.Name)+"  # and start the brokers whose replicas are missing")
	case t.Replicas == 1:
		j.warn(subject, found+": what it has is lost with one disk", c.tool("kafka-reassign-partitions.sh", "--reassignment-json-file … --execute  # to three replicas"), c.configs(t, "min.insync.replicas=2"))
	case least <= 1:
		j.warn(subject, found+": one broker's acknowledgement suffices", c.configs(t, "min.insync.replicas=2"))
	default:
		j.ok(subject, "%s; it keeps everything for ever, up to its size", found)
	}
}

// foreign reports whether the tally belongs to another journal than the cluster's.
func (j *judgment) foreign(c *ClusterFacts) bool {
	return slices.ContainsFunc(j.Tallies, func(t statestore.TallyState) bool {
		return t.Cluster == c.Name && t.Journal != "" && t.Journal != c.Journal.ID
	})
}

// journalFaults returns the settings that would lose records of the journal, or make them unreadable.
func journalFaults(c *ClusterFacts, t *TopicFacts, topic journal.Topic) (faults notes) {
	want := topic.Settings(t.Replicas)
	want["max.message.bytes"] = strconv.Itoa(journal.LeastMessage)
	is := func(wrong bool, name string) {
		value, known := t.Settings[name]
		faults.add(known && wrong, name+" is "+value, c.configs(t, name+"="+want[name]))
	}
	for _, name := range []string{"cleanup.policy", "retention.ms", "unclean.leader.election.enable"} {
		is(t.Settings[name] != want[name], name)
	}
	compression, keep, limit := t.Settings["compression.type"], t.Settings.number("retention.bytes"), t.Settings.number("max.message.bytes")
	is(compression != "producer" && compression != "uncompressed", "compression.type")
	is(keep >= 0 && keep < topic.KeepBytes(), "retention.bytes")
	is(limit >= 0 && limit < journal.LeastMessage, "max.message.bytes")
	return faults
}

func judgeTransactions(j *judgment, c *ClusterFacts) {
	subject := "cluster " + c.Name
	limit, least := c.Settings.number("transaction.max.timeout.ms"), c.Settings.number("transaction.state.log.min.isr")
	replicas := max(0, c.Settings.number("transaction.state.log.replication.factor"))
	timeout := j.Stream.Once.Timeout
	switch {
	case c.NoTransactions != "" || c.TransactionalID == "" || !c.RequireFencing:
		j.fail(subject, "rows cannot be published in transactions without fencing", "kafka: {clusters: {"+c.Name+": {fencing: required}}}, and brokers with transactions")
	case !c.Verifies:
		j.fail(subject, "a broker is older than Kafka 3.6", "upgrade the brokers, or delivery: at_least_once")
	case limit >= 0 && time.Duration(limit)*time.Millisecond < timeout:
		j.fail(subject, fmt.Sprintf("transaction.max.timeout.ms is %d, and transaction.timeout %v", limit, timeout), fmt.Sprintf("transaction: {timeout: %dms}", limit), "or raise transaction.max.timeout.ms of the brokers")
	case limit >= 0 && time.Duration(limit)*time.Millisecond < sink.MostRepairTimeout:
		j.warn(subject, fmt.Sprintf("transaction.max.timeout.ms is %d: if a broker loses the end of a transaction (KAFKA-20734), it cannot be brought about, and the stream waits", limit),
			fmt.Sprintf("transaction.max.timeout.ms=900000 of the brokers, which is the default; at least %d", sink.MostRepairTimeout.Milliseconds()))
	case least >= 0 && (replicas < 2 || least < 2):
		j.warn(subject, fmt.Sprintf("Kafka's transaction log has %s, and %d suffice to acknowledge", count(int(replicas), "replica", "replicas"), least),
			"transaction.state.log.replication.factor=3 and transaction.state.log.min.isr=2 of the brokers, before the topic __transaction_state is made; else reassign it")
	case least < 0:
		j.ok(subject, "transactions of %v; the settings of the brokers may not be read (DESCRIBE_CONFIGS on the cluster)", timeout)
	default:
		j.ok(subject, "transactions may take %v, and the brokers allow %v; Kafka's transaction log has %s, and %d must acknowledge", timeout, time.Duration(max(0, limit))*time.Millisecond, count(int(replicas), "replica", "replicas"), least)
	}
}
