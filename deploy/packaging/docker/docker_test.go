// Package docker tests what needs no container engine of deploy/docker: the
// compose file is read by Compose's own library, which checks it against the
// Compose specification's schema. No image is built here.
package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const folder = "../../../deploy/docker"

func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(folder, "compose.yaml")}, cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Both uses of the image have nothing to write to and no capability, get the
// configuration, and a stop is given longer than a drain takes (30s).
func TestServices(t *testing.T) {
	p := project(t)
	for _, name := range []string{"init", "outbox-cdc"} {
		s, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		if !s.ReadOnly || len(s.CapDrop) != 1 || s.CapDrop[0] != "ALL" || len(s.SecurityOpt) != 1 {
			t.Errorf("%s may do more than it needs: %+v", name, s)
		}
		if len(s.Volumes) != 1 || s.Volumes[0].Target != "/etc/outbox-cdc/outbox-cdc.yaml" || !s.Volumes[0].ReadOnly {
			t.Errorf("%s: volumes %+v", name, s.Volumes)
		} else if _, err := os.Stat(s.Volumes[0].Source); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := p.Services["outbox-cdc"]
	if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= 35*time.Second || s.GetScale() != 2 {
		t.Errorf("%d processes, killed after %v", s.GetScale(), s.StopGracePeriod)
	}
	build := p.Services["init"].Build
	if _, err := os.Stat(filepath.Join(build.Context, build.Dockerfile)); err != nil {
		t.Error(err)
	}
}

// The hosts of the configuration are services, and the broker tells clients the
// name under which they reach it.
func TestNames(t *testing.T) {
	p := project(t)
	config, err := os.ReadFile(filepath.Join(folder, "outbox-cdc.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for service, address := range map[string]string{"postgres": "@postgres:5432/orders", "kafka": `"kafka:9092"`} {
		if _, there := p.Services[service]; !there || !strings.Contains(string(config), address) {
			t.Errorf("no service %s, or the configuration does not name %s", service, address)
		}
	}
	if got := p.Services["kafka"].Environment["KAFKA_ADVERTISED_LISTENERS"]; got == nil || *got != "PLAINTEXT://kafka:9092" {
		t.Errorf("the broker is advertised as %v", got)
	}
	const password = "POSTGRES_PASSWORD"
	if p.Services["outbox-cdc"].Environment[password] == nil || !strings.Contains(string(config), "${env:"+password+"}") {
		t.Errorf("%s is not handed on", password)
	}
}
