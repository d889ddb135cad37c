package harness

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// This file makes starts of brokers cheap: what is the same in each of them is made once per machine and
// kept next to the jars. A start then takes about half of the processor's time.

// What a folder made by makeReady holds.
const (
	storage      = "storage"
	classArchive = "classes.jsa" // missing where this Java makes none
)

// makeReady fills a folder with formatted storage, and with the classes that a broker
// loads, as Java maps them into memory.
func makeReady(jars, ready string) error {
	if _, err := os.Stat(ready); err == nil {
		return nil
	}
	tmp, err := os.MkdirTemp(jars, "making-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, "made")
	c := &Cluster{dir: tmp}
	n, err := newNode(c, 1, jars, "", KafkaOptions{})
	if err != nil {
		return err
	}
	c.Nodes = []*Node{n}
	if err := n.configure(c, KafkaOptions{}); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(made, storage), os.DirFS(n.data())); err != nil {
		return err
	}
	n.flags = []string{"-XX:ArchiveClassesAtExit=" + filepath.Join(made, classArchive)}
	err = n.start()
	if err == nil {
		err = n.awaitReady()
	}
	n.Stop()
	if err != nil {
		return fmt.Errorf("starting a broker to keep its classes: %w", err)
	}
	return os.Rename(made, ready)
}

// data returns the folder of the broker's storage.
func (n *Node) data() string { return filepath.Join(n.dir, "data") }

// keptClasses makes Java map the kept classes, if this Java made them.
func keptClasses(ready string) []string {
	archive := filepath.Join(ready, classArchive)
	if _, err := os.Stat(archive); err != nil {
		return nil
	}
	return []string{"-XX:SharedArchiveFile=" + archive}
}

var (
	nodeLine      = regexp.MustCompile(`(?m)^node\.id=.*$`)
	clusterLine   = regexp.MustCompile(`(?m)^cluster\.id=.*$`)
	directoryLine = regexp.MustCompile(`(?m)^directory\.id=.*$`)
)

// putStorage is format without Java: the kept storage, with ids of this broker's own.
func (n *Node) putStorage() error {
	kept := filepath.Join(n.ready, storage)
	if err := os.CopyFS(n.data(), os.DirFS(kept)); err != nil {
		return err
	}
	path := filepath.Join(n.data(), "meta.properties")
	meta, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !nodeLine.Match(meta) || !clusterLine.Match(meta) {
		return fmt.Errorf("meta.properties in %s has no node.id or no cluster.id: %s", kept, bytes.TrimSpace(meta))
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	id[0] &= 0x7f        // Kafka takes no id whose text begins with a dash
	meta = clusterLine.ReplaceAll(meta, []byte("cluster.id="+n.cluster))
	meta = nodeLine.ReplaceAll(meta, []byte("node.id="+strconv.Itoa(n.id)))
	meta = directoryLine.ReplaceAll(meta, []byte("directory.id="+base64.RawURLEncoding.EncodeToString(id)))
	return os.WriteFile(path, meta, 0o644)
}
