package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

var kafkaChecks = []check{
	{
		name: "brokers", judge: judgeBrokers,
		looks:  "every broker, of the configuration and of the cluster's own list, can be reached at the address that it advertises, TLS and login included",
		levels: "FAIL: a broker cannot be used. WARN: a bootstrap address cannot be used, while others can",
		why:    "a partition's records go to its leader only: while one broker cannot be reached, the rows of its partitions wait",
	},
	{
		name: "kafka-version", judge: eachCluster(judgeKafkaVersion),
		looks:  "how much of Kafka's protocol all brokers know: the full protocol (Kafka 2.8 or later), one without transactions, or an old one",
		levels: "FAIL: records with headers (Kafka 0.11) are not in it",
		why:    "brokers of an old protocol do not say which record of a batch they refuse, so the batch is divided until it is found. Without transactions former leaders are not fenced",
	},
	{
		name: "topics", judge: judgeTopics,
		looks:  "each topic that rows go to (topics that mappings name as constants, and those of a sample of rows) exists, and every partition has a leader",
		levels: "FAIL: a topic is missing or DESCRIBE is refused, or a partition has no leader",
		why:    "rows of a topic that is not there wait, all others go on",
	},
	{
		name: "topic-replication", judge: eachTopic(judgeReplication),
		looks:  "replication factor, `min.insync.replicas` and replicas in sync",
		levels: "FAIL: fewer in sync than `min.insync.replicas`. WARN: there is one replica, one is out of sync, or `min.insync.replicas` is 1 or demands all of them",
		why:    "SENT means acknowledged by all replicas in sync, but at least by min.insync.replicas: with one, an acknowledged record is lost with one disk",
	},
	{
		name: "message-size", judge: eachTopic(judgeMessageSize),
		looks:  "`max.message.bytes` of the topic against the largest waiting row and our `max_request_bytes`",
		levels: "FAIL: a row is larger. WARN: the limit may not be read, or a row is close to it",
		why:    "a record that is too large is refused each time, and fails when its tries are used up",
	},
	{
		name: "record-times", judge: eachTopic(judgeRecordTimes),
		looks:  "`message.timestamp.type`, `.before.max.ms`, `.after.max.ms` and `retention.ms` of topics of tables with `timestamp`, against their rows",
		levels: "FAIL: the oldest row that waits is older, or the newest further ahead, than the topic accepts. WARN: the oldest row is older than the topic's retention; the topic would refuse a row after an outage of a week; or the topic sets its own times",
		why:    "the broker refuses a record whose time is out of bounds each time, so its row waits (`timestamp_refused`); one that is older than `retention.ms` it takes, and deletes within minutes",
	},
	{
		name: "compaction", judge: eachTopic(judgeCompaction),
		looks:  "topics with `cleanup.policy=compact` against keys that may be NULL",
		levels: "WARN: records without a key can go there. FAIL: no record has a key",
		why:    "such a topic refuses records without a key; their rows fail",
	},
	{
		name: "topic-acl", judge: eachTopic(judgeTopicACL),
		looks:  "WRITE on each topic, as the broker tells what we may do (KIP-430); READ and DESCRIBE_CONFIGS as well",
		levels: "FAIL: no WRITE. WARN: no READ",
		why:    "without WRITE the topic's rows wait. READ is for looking, after a lost answer, whether a record has arrived; without it such records may come twice",
	},
	{
		name: "idempotent-write", judge: eachCluster(judgeIdempotent),
		looks:  "whether the brokers give us a producer id (the request has no transactional id, so it disturbs nobody)",
		levels: "FAIL: they do not",
		why:    "records are numbered by it, so that a repeated request adds none twice",
	},
	{
		name: "transactional-id", judge: eachCluster(judgeTransactional),
		looks:  "the ACL for the transactional id PREFIX-STREAM-CLUSTER. The check only asks for the id's coordinator (DESCRIBE, which WRITE includes): use of the id would fence a running leader",
		levels: "WARN: the id is refused, or the brokers have no transactions. FAIL: the same with `fencing: required`",
		why:    "a new leader fences its predecessor by it; without it a leader that was cut off and comes back may add duplicates",
	},
}

// whole makes a finding apply to the cluster as a whole, not to the stream.
func whole(f *Finding) *Finding {
	f.Stream = ""
	return f
}

// eachCluster runs judge for each cluster that answered.
func eachCluster(judge func(j *judgment, c *ClusterFacts)) func(*judgment) {
	return func(j *judgment) {
		for i := range j.Kafka {
			c := &j.Kafka[i]
			if c.Err != "" {
				j.unseen("cluster "+c.Name, c.Err+" (see the check brokers)")
				continue
			}
			judge(j, c)
		}
	}
}

// eachTopic runs judge for each topic that exists.
func eachTopic(judge func(j *judgment, subject string, c *ClusterFacts, t *TopicFacts)) func(*judgment) {
	return eachCluster(func(j *judgment, c *ClusterFacts) {
		if len(c.Topics) == 0 {
			j.skip("cluster "+c.Name, "no topic is known yet: rows name theirs, and there is none")
		}
		for i := range c.Topics {
			t := &c.Topics[i]
			subject := "topic " + t.Name + " on " + c.Name
			if t.Err != sink.NoError {
				j.skip(subject, "the topic is not there (see the check topics)")
				continue
			}
			judge(j, subject, c, t)
		}
	})
}

func judgeBrokers(j *judgment) {
	for i := range j.Kafka {
		c := &j.Kafka[i]
		usable := c.Err == ""
		for _, b := range c.Brokers {
			subject := "broker " + b.Address + " of " + c.Name
			if b.Err == nil {
				whole(j.ok(subject, "reached in %v", b.Took.Round(100*time.Microsecond)))
				continue
			}
			found := strings.TrimPrefix(b.Err.Error(), "broker "+b.Address+": ")
			if b.ID < 0 && usable {
				whole(j.warn(subject, found, "correct kafka.clusters."+c.Name+".brokers, or start the broker"))
				continue
			}
			whole(j.fail(subject, found, brokerHints(c, &b)...)).Unseen = !b.Permanent
		}
	}
}

func brokerHints(c *ClusterFacts, b *BrokerFacts) []string {
	switch text := b.Err.Error(); {
	case b.Permanent && strings.Contains(text, "credentials"):
		return []string{
			"correct kafka.clusters." + c.Name + ".sasl in the configuration",
			"or, for SCRAM, set the password on the cluster: " + c.tool("kafka-configs.sh", "--alter --add-config 'SCRAM-SHA-512=[password=…]' --entity-type users --entity-name "+cmp.Or(c.Principal, "…")),
		}
	case b.Permanent:
		return []string{"correct kafka.clusters." + c.Name + ".tls or .sasl as the finding says"}
	case b.ID >= 0:
		return []string{"make " + b.Address + " reachable from here, or correct advertised.listeners of broker " + fmt.Sprint(b.ID)}
	}
	return []string{"start the broker, or correct kafka.clusters." + c.Name + ".brokers, .tls and .sasl"}
}

// Versions of the Produce request: the first one with headers, and the newest one of Kafka 2.8.
// https://kafka.apache.org/protocol#The_Messages_Produce
const (
	produceOfHeaders = 3
	produceOf28      = 9
)

func judgeKafkaVersion(j *judgment, c *ClusterFacts) {
	subject := "cluster " + c.Name
	switch v := c.ProduceVersion; {
	case v < 0:
		j.unseen(subject, "no broker tells which requests it knows")
	case v < produceOfHeaders:
		whole(j.fail(subject, fmt.Sprintf("the oldest broker knows Produce requests up to version %d; records have headers from version %d on (Kafka 0.11)", v, produceOfHeaders), "upgrade the brokers"))
	case v < produceOf28:
		whole(j.ok(subject, "an old protocol: the oldest broker knows Produce requests up to version %d (Kafka 2.8: %d)", v, produceOf28))
	case c.NoTransactions != "":
		whole(j.ok(subject, "a protocol without transactions: all brokers know Produce requests of version %d (Kafka 2.8)", produceOf28))
	default:
		whole(j.ok(subject, "the full protocol: all brokers know Produce requests of version %d (Kafka 2.8), and transactions", produceOf28))
	}
}

func judgeTopics(j *judgment) {
	for i := range j.Tables {
		if t := &j.Tables[i]; t.Missing["rows"] != "" {
			j.unseen(t.Table.String(), t.Missing["rows"])
		}
	}
	eachCluster(judgeTopicsOf)(j)
}

func judgeTopicsOf(j *judgment, c *ClusterFacts) {
	for i := range c.Topics {
		judgeTopic(j, "topic "+c.Topics[i].Name+" on "+c.Name, c, &c.Topics[i])
	}
	switch {
	case len(c.Topics) == 0:
		j.skip("cluster "+c.Name, "no topic is known yet: rows name theirs, and there is none")
	case c.Unknown:
		j.skip("cluster "+c.Name, "a table whose rows name their topics has none yet")
	}
}

func judgeTopic(j *judgment, subject string, c *ClusterFacts, t *TopicFacts) {
	describe := c.tool("kafka-topics.sh", "--describe --topic "+t.Name)
	switch {
	case t.Err == sink.UnknownTopic:
		j.fail(subject, "it does not exist, or we may not see it",
			c.tool("kafka-topics.sh", "--create --topic "+t.Name+" --partitions 6 "+c.replication()), c.acl("Write", "--topic "+t.Name))
	case t.Err == sink.TopicForbidden:
		j.fail(subject, "we may not see it", c.acl("Write", "--topic "+t.Name), c.acl("Describe", "--topic "+t.Name))
	case t.Err == sink.InvalidTopic:
		j.fail(subject, "that is no legal topic name", "correct the rows, or topic in the mapping: 1 to 249 of a-z, A-Z, 0-9, dot, underscore and hyphen")
	case t.Err != sink.NoError && t.Err != sink.LeaderNotAvailable:
		j.fail(subject, t.Err.Error(), describe).Unseen = true
	case t.Leaderless > 0 || t.Partitions == 0:
		j.fail(subject, fmt.Sprintf("%d of %d partitions have no leader", t.Leaderless, t.Partitions), "start the brokers that have them, or free their disks and restart them: "+describe)
	default:
		j.ok(subject, "%s, each with a leader; keys go to partitions as the Java client sends them", count(t.Partitions, "partition", "partitions"))
	}
}

// tool returns a command line of one of Kafka's own tools for this cluster.
func (c *ClusterFacts) tool(name, arguments string) string {
	return name + " --bootstrap-server " + c.Bootstrap + " " + arguments
}

func (c *ClusterFacts) acl(operation, resource string) string {
	return c.tool("kafka-acls.sh", "--add --allow-principal User:"+cmp.Or(c.Principal, "…")+" --operation "+operation+" "+resource)
}

func (c *ClusterFacts) configs(t *TopicFacts, setting string) string {
	return c.tool("kafka-configs.sh", "--alter --entity-type topics --entity-name "+t.Name+" --add-config "+setting)
}

func judgeReplication(j *judgment, subject string, c *ClusterFacts, t *TopicFacts) {
	least := t.Settings.number("min.insync.replicas")
	found := fmt.Sprintf("%s, %d in sync", count(t.Replicas, "replica", "replicas"), t.InSync)
	if least >= 0 {
		found += fmt.Sprintf(", min.insync.replicas %d", least)
	} else {
		found += ", min.insync.replicas may not be read (DESCRIBE_CONFIGS)"
	}
	describe := c.tool("kafka-topics.sh", "--describe --topic "+t.Name) + "  # and start the brokers whose replicas are missing"
	switch {
	case least > int64(t.InSync):
		j.fail(subject, found+": the topic takes no records", describe)
	case t.Replicas == 1:
		j.warn(subject, found+": what it has is lost with one disk", c.tool("kafka-reassign-partitions.sh", "--reassignment-json-file … --execute  # to three replicas"), c.configs(t, "min.insync.replicas=2"))
	case least == 1:
		j.warn(subject, found+": one broker's acknowledgement suffices", c.configs(t, "min.insync.replicas=2"))
	case least >= int64(t.Replicas):
		j.warn(subject, found+": it takes no records while one broker is down", c.configs(t, fmt.Sprintf("min.insync.replicas=%d", t.Replicas-1)))
	case t.InSync < t.Replicas:
		j.warn(subject, found, describe)
	default:
		j.ok(subject, "%s", found)
	}
}

// overhead is the size in bytes that a record adds to a batch of its own, with a guess at its headers.
const overhead = 512

func judgeMessageSize(j *judgment, subject string, c *ClusterFacts, t *TopicFacts) {
	limit, request, largest := t.Settings.number("max.message.bytes"), int64(c.BatchBytes), int64(0)
	for i := range j.Tables {
		if table := &j.Tables[i]; table.Backlog != nil && leadsTo(table, c.Name, t.Name) {
			largest = max(largest, table.Backlog.Largest)
		}
	}
	rows := "no row waits"
	if largest > 0 {
		rows = "the largest waiting row of its tables has " + size(largest)
	}
	switch found := fmt.Sprintf("max.message.bytes is %s, max_request_bytes %s, and %s", size(limit), size(request), rows); {
	case limit < 0:
		j.warn(subject, "max.message.bytes may not be read; "+rows+", and max_request_bytes is "+size(request)+". The limit is learnt from refusals", c.acl("DescribeConfigs", "--topic "+t.Name))
	case largest > limit:
		j.fail(subject, found, c.configs(t, fmt.Sprintf("max.message.bytes=%d", largest*5/4+overhead)),
			fmt.Sprintf("kafka: {clusters: {%s: {max_request_bytes: %dB}}}  # in the configuration", c.Name, largest*5/4+overhead),
			"and raise what reads it: replica.fetch.max.bytes of the brokers, max.partition.fetch.bytes of consumers")
	case largest+overhead > limit/10*9:
		j.warn(subject, found, c.configs(t, fmt.Sprintf("max.message.bytes=%d", 2*limit)))
	case request > limit:
		j.ok(subject, "%s: batches are kept below the topic's limit", found)
	default:
		j.ok(subject, "%s", found)
	}
}

// recordTimeNow is the other solution for a topic's bounds on timestamps.
const recordTimeNow = "timestamp_refused: now  # in the table's mapping: such a record has the time of producing"

func judgeRecordTimes(j *judgment, subject string, c *ClusterFacts, t *TopicFacts) {
	const longOutage = 7 * 86_400 // seconds
	before, after := t.Settings.number("message.timestamp.before.max.ms")/1000, t.Settings.number("message.timestamp.after.max.ms")/1000
	var keeps int64 // seconds from a record's own time; 0: for ever, or unknown
	if strings.Contains(t.Settings["cleanup.policy"], "delete") {
		keeps = t.Settings.number("retention.ms") / 1000
	}
	oldest, kept, newest, mapped, waits := int64(-1), int64(-1), int64(0), false, false // kept: of records with their row's time
	for i := range j.Tables {
		table := &j.Tables[i]
		m := &table.Table.Mapping
		if m.Timestamp == "" || !leadsTo(table, c.Name, t.Name) {
			continue
		}
		mapped = true
		age := int64(-1)
		if table.Backlog != nil && m.CreatedAt == m.Timestamp {
			age = table.Backlog.Oldest
		}
		if !m.TimestampNow || before <= 0 || age <= before {
			kept = max(kept, age)
		}
		if m.TimestampNow {
			continue
		}
		waits = true
		oldest = max(oldest, age)
		newest = min(newest, table.Newest[m.Timestamp])
	}
	switch kind, known := t.Settings["message.timestamp.type"]; {
	case !mapped:
		j.ok(subject, "records have the time of their producing")
	case !known:
		j.skip(subject, "message.timestamp.type may not be read (DESCRIBE_CONFIGS)")
	case kind == "LogAppendTime":
		j.warn(subject, "message.timestamp.type is LogAppendTime, so records have the time of their arrival, not that of the column that timestamp names", c.configs(t, "message.timestamp.type=CreateTime"))
	case before > 0 && oldest > before:
		j.fail(subject, fmt.Sprintf("message.timestamp.before.max.ms is %s, and the oldest row that waits is %s old", span(before), span(oldest)), c.configs(t, "message.timestamp.before.max.ms=9223372036854775807"), recordTimeNow)
	case after > 0 && -newest > after:
		j.fail(subject, fmt.Sprintf("message.timestamp.after.max.ms is %s, and the newest row is %s ahead", span(after), span(-newest)), "see the check times", c.configs(t, "message.timestamp.after.max.ms=9223372036854775807"))
	case keeps > 0 && kept > keeps:
		j.warn(subject, fmt.Sprintf("retention.ms is %s and counts from a record's time, and the oldest row that waits is %s old: its record may be deleted before it is read", span(keeps), span(kept)),
			c.configs(t, fmt.Sprintf("retention.ms=%d", 2_000*kept)), "or "+c.configs(t, "message.timestamp.before.max.ms="+t.Settings["retention.ms"]), recordTimeNow)
	case waits && before > 0 && before < longOutage:
		j.warn(subject, fmt.Sprintf("message.timestamp.before.max.ms is %s: a row that an outage keeps for longer waits until somebody raises it", span(before)), c.configs(t, "message.timestamp.before.max.ms=9223372036854775807"), recordTimeNow)
	default:
		j.ok(subject, "records keep the time of their row")
	}
}

// leadsTo reports whether some of the table's rows may go to the topic.
func leadsTo(t *TableFacts, cluster, topic string) bool {
	return slices.Contains(topicsOn(cluster, &t.Table.Mapping, t.Topics), topic)
}

func judgeCompaction(j *judgment, subject string, c *ClusterFacts, t *TopicFacts) {
	policy, known := t.Settings["cleanup.policy"]
	if !known {
		j.skip(subject, "cleanup.policy may not be read (DESCRIBE_CONFIGS)")
		return
	}
	if !strings.Contains(policy, "compact") {
		j.ok(subject, "cleanup.policy is %s", policy)
		return
	}
	hint := c.configs(t, "cleanup.policy=delete")
	for i := range j.Tables {
		table := &j.Tables[i]
		if !leadsTo(table, c.Name, t.Name) {
			continue
		}
		key := table.Table.Mapping.Key
		if key == nil {
			j.fail(subject, "it is compacted, and records of "+table.Table.String()+" have no key", "key: {column: …}  # in the mapping", hint)
			return
		}
		if column := table.column(key.Column); column != nil && !column.NotNull && key.Parts == nil { // with Parts, a NULL makes the row fail
			j.warn(subject, "it is compacted, and the key column "+key.Column+" of "+table.Table.String()+" may be NULL",
				"ALTER TABLE "+quotedTable(table.Table.Table)+" ALTER "+quotedNames([]string{key.Column})+" SET NOT NULL;", hint)
			return
		}
	}
	j.ok(subject, "it is compacted, and every record has a key")
}

func judgeTopicACL(j *judgment, subject string, c *ClusterFacts, t *TopicFacts) {
	switch write, read := t.may(mayWrite), t.may(mayRead); {
	case !t.OperationsKnown:
		j.skip(subject, "the broker does not tell what we may do")
	case !write:
		j.fail(subject, "we may not WRITE to it", c.acl("Write", "--topic "+t.Name))
	case !read:
		j.warn(subject, "we may WRITE, and not READ", c.acl("Read", "--topic "+t.Name))
	case !t.may(mayDescribeConfigs):
		j.ok(subject, "we may WRITE and READ; its settings may not be read (DESCRIBE_CONFIGS)")
	default:
		j.ok(subject, "we may WRITE and READ, and read its settings")
	}
}

func judgeIdempotent(j *judgment, c *ClusterFacts) {
	subject := "cluster " + c.Name
	switch answer := c.Idempotent; {
	case answer == nil:
		j.unseen(subject, "the broker did not answer")
	case *answer == sink.NoError:
		whole(j.ok(subject, "we get a producer id"))
	case *answer == sink.ClusterForbidden:
		whole(j.fail(subject, "we get no producer id: "+answer.Error(), c.acl("IdempotentWrite", "--cluster")))
	default:
		j.unseen(subject, answer.Error())
	}
}

func judgeTransactional(j *judgment, c *ClusterFacts) {
	subject := "transactional id " + c.TransactionalID
	switch answer := c.Transactional; {
	case c.TransactionalID == "":
		j.skip("cluster "+c.Name, "`fencing: off`: former leaders are not fenced")
	case c.NoTransactions != "":
		j.unfenced(c, subject, c.NoTransactions, acceptUnfenced)
	case answer == nil:
		j.unseen(subject, "the broker did not answer")
	case *answer == sink.TransactionalIDForbidden:
		j.unfenced(c, subject, "it is not ours to use", c.acl("Write", "--transactional-id "+c.TransactionalID), c.acl("Describe", "--transactional-id "+c.TransactionalID))
	case *answer == sink.NoError, *answer == sink.CoordinatorNotAvailable:
		j.ok(subject, "we may see it; whether WRITE is granted shows when a process leads (it was not tried, so as to fence nobody)")
	case *answer == sink.CoordinatorLoading, *answer == sink.NotCoordinator, *answer == sink.RequestTimedOut:
		j.unseen(subject, answer.Error())
	default:
		j.unfenced(c, subject, "the brokers name no coordinator for it: "+answer.Error(), acceptUnfenced)
	}
}

const acceptUnfenced = "use brokers with transactions, or accept duplicates from a leader that was cut off and comes back: `fencing: off`"

// unfenced reports that former leaders cannot be fenced.
func (j *judgment) unfenced(c *ClusterFacts, subject, why string, hints ...string) {
	if c.RequireFencing {
		j.fail(subject, why+"; with `fencing: required` nothing is published", hints...)
		return
	}
	j.warn(subject, why, hints...)
}
