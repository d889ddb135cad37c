package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// KafkaOptions describe a Kafka cluster for one test.
type KafkaOptions struct {
	// Brokers is the number of brokers; 0 means 1. Only the first one is a controller: without it the others
	// cannot elect leaders.
	Brokers int
	// Settings are lines of server.properties for every broker. They override the harness's own lines.
	Settings map[string]string
	// Listeners next to the plain one, reached by Node.Addr(name).
	Listeners []Listener
	// Proxied puts a Proxy in front of every broker. Cluster.Addrs leads through the proxies, Cluster.Direct
	// around them.
	Proxied bool
	// Host is what the brokers advertise for their proxies, 127.0.0.1 if empty.
	Host string
	// Optimized runs the brokers with all of Java's compilers, as servers do, for measurements. Such brokers
	// start more slowly.
	Optimized bool
}

// Authorizing returns the options of a Kafka with ACLs, but without any rule yet. On its listener SAFE, the
// user poor with the password right may do nothing. On the plain listener, everybody may do everything.
func Authorizing() KafkaOptions {
	return KafkaOptions{
		Listeners: []Listener{{Name: "SAFE", Protocol: "SASL_PLAINTEXT"}},
		Settings: map[string]string{
			"sasl.enabled.mechanisms":                   "PLAIN",
			"listener.name.safe.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="a" user_poor="right";`,
			"authorizer.class.name":                     "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":                               "User:ANONYMOUS",
		},
	}
}

// Listener is a further listener of a broker. Its settings are in KafkaOptions.Settings, as
// listener.name.<lower-case name>.….
type Listener struct {
	Name     string // upper case
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
}

// The harness's listeners.
const (
	plainListener   = "PLAIN"
	proxiedListener = "PROXIED"
	controlListener = "CONTROL"
)

var sharedKafka struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Kafka returns the cluster that all tests of a package share: one real broker or, with a warning in the
// log, kfake. Each test uses topics of its own (see Cluster.Topic), and leaves the broker alone.
func Kafka(t testing.TB) *Cluster {
	t.Helper()
	if !haveKafka(t) {
		return Kfake(t)
	}
	sharedKafka.once.Do(func() {
		sharedKafka.cluster, sharedKafka.err = startCluster(t, KafkaOptions{})
	})
	if sharedKafka.err != nil {
		t.Fatalf("harness: starting Apache Kafka: %v", sharedKafka.err)
	}
	return sharedKafka.cluster
}

// PrivateKafka starts a real cluster for one test. Without Java it skips the test, and prints a line that
// stands out.
func PrivateKafka(t testing.TB, o KafkaOptions) *Cluster {
	t.Helper()
	if !haveKafka(t) {
		t.Skip("needs a real Apache Kafka: Java 17 and Maven")
	}
	c, err := startCluster(t, o)
	if err != nil {
		t.Fatalf("harness: starting Apache Kafka: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.Nodes {
				t.Logf("broker %d logged:\n%s", n.id, lastLines(n.log(), 20))
			}
		}
		c.kill()
		_ = os.RemoveAll(c.dir)
	})
	if o.Proxied {
		c.proxy(t)
	}
	return c
}

// haveKafka reports whether a real Apache Kafka is available, and logs a warning if not. If one is required,
// it fails the test.
func haveKafka(t testing.TB) bool {
	t.Helper()
	if os.Getenv(EnvKafka) == "fake" {
		loud("no real Apache Kafka: " + EnvKafka + "=fake, these tests run against kfake or are skipped")
		return false
	}
	_, err := theKafka()
	if err == nil {
		return true
	}
	if os.Getenv(EnvKafka) == "required" {
		t.Fatalf("harness: %s=required, but there is no Apache Kafka: %v", EnvKafka, err)
	}
	loud(fmt.Sprintf("no real Apache Kafka (%v): these tests run against kfake or are skipped", err))
	return false
}

// Node is one broker.
type Node struct {
	id        int
	dir       string
	ports     map[string]int // by listener
	advertise map[string]int // where it differs
	props     string
	cluster   string // its id
	jars      string
	ready     string   // see makeReady; or empty
	flags     []string // of Java
	main      []string // class and arguments of what is no broker
	optimized bool

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

// startCluster starts a cluster. It tries again if another process has taken one of its ports.
func startCluster(t testing.TB, o KafkaOptions) (*Cluster, error) {
	t.Helper()
	for tries := 1; ; tries++ {
		c, err := tryCluster(roomFor(t, "kafka"), o)
		if err == nil || tries == 3 || !strings.Contains(err.Error(), "already in use") {
			return c, err
		}
	}
}

func tryCluster(dir string, o KafkaOptions) (_ *Cluster, err error) {
	home, err := theKafka()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Real: true, dir: dir}
	defer func() {
		if err != nil {
			c.kill()
		}
	}()
	for id := 1; id <= max(1, o.Brokers); id++ {
		n, err := newNode(c, id, home.jars, home.ready, o)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, n := range c.Nodes {
		if err := n.configure(c, o); err != nil {
			return nil, err
		}
	}
	if withZooKeeper() {
		if err := c.startZooKeeper(); err != nil {
			return nil, err
		}
	}
	for _, n := range c.Nodes {
		if err := n.start(); err != nil {
			return nil, err
		}
	}
	for _, n := range c.Nodes {
		c.Addrs = append(c.Addrs, n.Addr(plainListener))
		if err := n.awaitReady(); err != nil {
			return nil, err
		}
	}
	c.Direct = c.Addrs
	return c, nil
}

func newNode(c *Cluster, id int, jars, ready string, o KafkaOptions) (*Node, error) {
	n := &Node{id: id, cluster: clusterID, jars: jars, ready: ready, flags: keptClasses(ready), optimized: o.Optimized, dir: filepath.Join(c.dir, fmt.Sprintf("%d", id)), ports: map[string]int{}, advertise: map[string]int{}}
	names := []string{plainListener, controlListener}
	if o.Proxied {
		names = append(names, proxiedListener)
	}
	for _, l := range o.Listeners {
		names = append(names, l.Name)
	}
	ports, err := freePorts(len(names) + 1)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		n.ports[name] = ports[i]
	}
	if o.Proxied {
		n.advertise[proxiedListener] = ports[len(names)]
	}
	return n, os.MkdirAll(n.dir, 0o755)
}

// configure writes server.properties.
func (n *Node) configure(c *Cluster, o KafkaOptions) error {
	first := c.Nodes[0]
	var listeners, advertised, protocols []string
	for name, port := range n.ports {
		protocol := "PLAINTEXT"
		for _, l := range o.Listeners {
			if l.Name == name {
				protocol = l.Protocol
			}
		}
		protocols = append(protocols, name+":"+protocol)
		if name == controlListener {
			if n == first && !withZooKeeper() {
				listeners = append(listeners, fmt.Sprintf("%s://127.0.0.1:%d", name, port))
			}
			continue
		}
		listeners = append(listeners, fmt.Sprintf("%s://127.0.0.1:%d", name, port))
		host := "127.0.0.1"
		if p := n.advertise[name]; p != 0 {
			host, port = cmp.Or(o.Host, host), p
		}
		advertised = append(advertised, fmt.Sprintf("%s://%s:%d", name, host, port))
	}
	roles := "broker"
	if n == first {
		roles = "broker,controller"
	}
	replicas := fmt.Sprint(len(c.Nodes))
	props := map[string]string{
		"process.roles": roles, "node.id": fmt.Sprint(n.id),
		"controller.quorum.voters":                         fmt.Sprintf("%d@127.0.0.1:%d", first.id, first.ports[controlListener]),
		"listeners":                                        strings.Join(listeners, ","),
		"advertised.listeners":                             strings.Join(advertised, ","),
		"listener.security.protocol.map":                   strings.Join(protocols, ","),
		"controller.listener.names":                        controlListener,
		"inter.broker.listener.name":                       plainListener,
		"log.dirs":                                         n.data(),
		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       replicas,
		"offsets.topic.replication.factor":                 replicas,
		"offsets.topic.num.partitions":                     "1",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "2",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"log.segment.bytes":                                "134217728",
		"controlled.shutdown.retry.backoff.ms":             "100",
	}
	if withZooKeeper() {
		n.useZooKeeper(first, props)
	}
	for k, v := range o.Settings {
		props[k] = v
	}
	var lines []string
	for k, v := range props {
		lines = append(lines, k+"="+v+"\n")
	}
	sort.Strings(lines)
	n.props = filepath.Join(n.dir, "server.properties")
	if err := os.WriteFile(n.props, []byte(strings.Join(lines, "")), 0o644); err != nil {
		return err
	}
	if withZooKeeper() {
		return nil
	}
	return n.makeStorage()
}

func (n *Node) makeStorage() error {
	if n.ready != "" {
		return n.putStorage()
	}
	return n.format()
}

// clusterID is the id of every test cluster, except after Node.Become. The clusters have different ports.
const clusterID = "b3V0Ym94LWNkYy10ZXN0cw"

func (n *Node) format() error {
	out, err := n.java("kafka.tools.StorageTool", "format", "-t", n.cluster, "-c", n.props).CombinedOutput()
	if err != nil {
		return fmt.Errorf("formatting broker %d's storage: %w: %s", n.id, err, out)
	}
	return nil
}

// java prepares a class of Kafka's to be run. The flags are for a short life:
// the first compiler only, the small collector.
func (n *Node) java(class string, args ...string) *exec.Cmd {
	compilers := "-XX:TieredStopAtLevel=1"
	if n.optimized {
		compilers = "-XX:+TieredCompilation"
	}
	all := append(append([]string{"-Xmx512m", "-XX:+UseSerialGC", compilers, "-Xshare:auto"}, n.flags...),
		"-Dlog4j2.configurationFile=file:"+filepath.Join(n.jars, "log4j2.properties"),
		"-cp", filepath.Join(n.jars, "libs", "*"), class)
	cmd := exec.Command("java", append(all, args...)...)
	cmd.Dir = n.dir
	return cmd
}

// Addr returns the broker's address as host:port.
func (n *Node) Addr(listener string) string { return fmt.Sprintf("127.0.0.1:%d", n.ports[listener]) }

// PID returns the id of the broker's process, or 0 while the broker does not run.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// ID returns the broker's node id, from 1.
func (n *Node) ID() int { return n.id }

func (n *Node) log() string {
	b, _ := os.ReadFile(filepath.Join(n.dir, "log")) // an empty log says enough
	return string(b)
}

// Start starts a stopped or killed broker on the same ports and data, and
// waits until it serves.
func (n *Node) Start(t testing.TB) {
	t.Helper()
	if err := errors.Join(n.start(), n.awaitReady()); err != nil {
		t.Fatalf("harness: %v", err)
	}
}

// Become stops a cluster's only broker, and starts the broker of another cluster on the same ports, with
// that cluster's data. At first there is no data.
func (n *Node) Become(t testing.TB, cluster string) {
	t.Helper()
	if withZooKeeper() {
		t.Skip("the id of a cluster is ZooKeeper's")
	}
	n.Stop()
	kept := func(id string) string { return filepath.Join(n.dir, "data-"+id) }
	err := os.Rename(n.data(), kept(n.cluster))
	n.cluster = cluster
	if err == nil {
		if err = os.Rename(kept(cluster), n.data()); errors.Is(err, os.ErrNotExist) {
			err = n.makeStorage()
		}
	}
	if err != nil {
		t.Fatalf("harness: making cluster %s: %v", cluster, err)
	}
	n.Start(t)
}

// Lose removes a stopped broker's data of a partition, as if its disk broke.
func (n *Node) Lose(t testing.TB, topic string, partition int) {
	t.Helper()
	dir := filepath.Join(n.data(), fmt.Sprintf("%s-%d", topic, partition))
	_, err := os.Stat(dir)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		t.Fatalf("harness: losing a partition: %v", err)
	}
}

// Stop asks the broker to shut down (SIGTERM) and waits until it has.
func (n *Node) Stop() { n.end(syscall.SIGTERM) }

// Kill ends the broker with SIGKILL.
func (n *Node) Kill() { n.end(syscall.SIGKILL) }

// Freeze stops the broker's process with SIGSTOP; Thaw lets it go on.
func (n *Node) Freeze(t testing.TB) { n.mustSignal(t, syscall.SIGSTOP) }

// Thaw ends Freeze.
func (n *Node) Thaw(t testing.TB) { n.mustSignal(t, syscall.SIGCONT) }

func (n *Node) mustSignal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		t.Fatalf("harness: broker %d does not run", n.id)
	}
	if err := n.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("harness: %v to broker %d: %v", sig, n.id, err)
	}
}

func (n *Node) end(sig syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(sig) // fails only where it has ended
	_ = n.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-n.done:
	case <-time.After(40 * time.Second):
		_ = n.cmd.Process.Kill()
		<-n.done
	}
	n.cmd = nil
}

// awaitReady waits until the broker answers a metadata request that names it:
// minutes where three start at once on a machine that has much else to do.
func (n *Node) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for {
		err := serves(ctx, n.Addr(plainListener), n.id)
		if err == nil {
			return nil
		}
		select {
		case <-n.done:
			return fmt.Errorf("broker %d ended: %s", n.id, lastLines(n.log(), 20))
		case <-ctx.Done():
			return fmt.Errorf("broker %d does not serve: %w; it logged: %s", n.id, err, lastLines(n.log(), 20))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
