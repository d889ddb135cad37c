package harness

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"text/template"
)

// kafkaHome is what brokers are started from.
type kafkaHome struct {
	jars  string // holds libs/*.jar and log4j2.properties
	ready string // see makeReady; empty where starts are not made cheap
}

// theKafka is fetched by Maven and made ready once per machine.
var theKafka = sync.OnceValues(func() (h kafkaHome, err error) {
	java, err := javaIsThere()
	if err != nil {
		return h, err
	}
	dir, err := cache()
	if err != nil {
		return h, err
	}
	h.jars = filepath.Join(dir, "kafka-"+kafkaVersion())
	unlock, err := lockFile(h.jars + ".lock")
	if err != nil {
		return h, err
	}
	defer unlock()
	if _, err := os.Stat(h.jars); err != nil {
		if err := fetchJars(h.jars); err != nil {
			return h, err
		}
	}
	if withZooKeeper() {
		return h, nil
	}
	h.ready = filepath.Join(h.jars, fmt.Sprintf("ready-%x", crc32.ChecksumIEEE(java)))
	return h, makeReady(h.jars, h.ready)
})

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// javaIsThere asks for Java 17 or later, and gives what it says of itself.
func javaIsThere() ([]byte, error) {
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("java -version: %w", err)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("java -version says %q", out)
	}
	if major, err := strconv.Atoi(string(m[1])); err != nil || major < 17 {
		return nil, fmt.Errorf("java is version %s, Apache Kafka 4 needs 17", m[1])
	}
	return out, nil
}

var pom = template.Must(template.New("pom").Parse(`<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>outbox-cdc.test</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{{.}}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.1</version></dependency>
  </dependencies>
</project>
`))

// copyDependencies is the Maven goal, with its version.
const copyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// quiet is log4j's configuration: what goes wrong, on standard output.
const quiet = `status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
`

// fetchJars fetches Kafka's.
func fetchJars(home string) error {
	var p bytes.Buffer
	if err := pom.Execute(&p, kafkaVersion()); err != nil {
		return err
	}
	return fetchByMaven(home, map[string][]byte{"pom.xml": p.Bytes(), "log4j2.properties": []byte(quiet)})
}

// fetchByMaven puts the dependencies of a pom.xml into home/libs, next to the
// files. It fills another folder and renames it whole.
func fetchByMaven(home string, files map[string][]byte) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("fetching jars: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(home), "fetching-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), content, 0o644); err != nil {
			return err
		}
	}
	cmd := exec.Command(mvn, "-q", "-B", copyDependencies, "-DoutputDirectory=libs")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetching jars by Maven for %s: %w: %s", filepath.Base(home), err, lastLines(string(out), 5))
	}
	return os.Rename(tmp, home)
}

// Jars fetches the dependencies of a pom.xml, once per machine and content, and
// gives the folder in which they are. Without Java or Maven the test is skipped,
// or fails where real servers are required.
func Jars(t testing.TB, pom string) string {
	t.Helper()
	if !haveKafka(t) {
		t.Skip("Java and Maven are needed")
	}
	content, err := os.ReadFile(pom)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cache()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	home := filepath.Join(dir, fmt.Sprintf("jars-%x", sum[:8]))
	unlock, err := lockFile(home + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(home); err == nil {
		return filepath.Join(home, "libs")
	}
	if err := fetchByMaven(home, map[string][]byte{"pom.xml": content}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(home, "libs")
}

// Classes compiles Java sources against jars and gives the class path.
func Classes(t testing.TB, jars string, sources ...string) string {
	t.Helper()
	out := roomFor(t, "classes")
	path := filepath.Join(jars, "*")
	cmd := exec.Command("javac", append([]string{"-Xlint:all", "-Werror", "-proc:none", "-cp", path, "-d", out}, sources...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("javac (a JDK is needed, not only a JRE): %v\n%s", err, text)
	}
	return out + string(os.PathListSeparator) + path
}

// lockFile takes a lock between processes.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
