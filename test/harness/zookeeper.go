package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// withZooKeeper reports whether the brokers' version keeps its metadata in ZooKeeper,
// which is among its jars.
func withZooKeeper() bool { return strings.HasPrefix(kafkaVersion(), "2.") }

// startZooKeeper starts it where the controller would listen. Brokers wait for it.
func (c *Cluster) startZooKeeper() error {
	first := c.Nodes[0]
	c.zooKeeper = &Node{id: 0, jars: first.jars, dir: filepath.Join(c.dir, "zookeeper")}
	c.zooKeeper.main = []string{"org.apache.zookeeper.server.ZooKeeperServerMain", fmt.Sprint(first.ports[controlListener]), c.zooKeeper.dir}
	if err := os.MkdirAll(c.zooKeeper.dir, 0o755); err != nil {
		return err
	}
	return c.zooKeeper.start()
}

// useZooKeeper puts its settings in the place of a controller's.
func (n *Node) useZooKeeper(first *Node, props map[string]string) {
	for _, name := range []string{"process.roles", "node.id", "controller.quorum.voters", "controller.listener.names"} {
		delete(props, name)
	}
	props["broker.id"] = fmt.Sprint(n.id)
	props["zookeeper.connect"] = fmt.Sprintf("127.0.0.1:%d", first.ports[controlListener])
}

// kill ends every process of the cluster.
func (c *Cluster) kill() {
	for _, n := range c.Nodes {
		n.Kill()
	}
	if c.zooKeeper != nil {
		c.zooKeeper.Kill()
	}
}
