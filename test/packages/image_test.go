package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// image is one architecture's image, as its configuration says it is run.
type image struct {
	Architecture string
	Config       struct {
		User, StopSignal string
		Entrypoint, Cmd  []string
		Labels           map[string]string
		ExposedPorts     map[string]struct{}
	}
	files map[string][]byte
	// attached is what refers to it.
	attached []byte
}

// descriptor points to content, see the OCI image specification.
type descriptor struct{ Digest string }

func (d descriptor) path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

// images are those of an OCI archive, by architecture.
func images(t *testing.T, archive string) map[string]image {
	t.Helper()
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	blobs := extracted(t, content)
	read := func(path string, into any) {
		t.Helper()
		if err := json.Unmarshal(blobs[path], into); err != nil {
			t.Fatalf("%s of %s: %v", path, archive, err)
		}
	}
	var top, list struct{ Manifests []descriptor }
	read("index.json", &top)
	read(top.Manifests[0].path(), &list)
	attached := map[string][]byte{} // by subject
	for _, m := range top.Manifests[1:] {
		var artifact struct {
			ArtifactType string
			Layers       []descriptor
			Subject      descriptor
		}
		if read(m.path(), &artifact); artifact.ArtifactType == "application/vnd.cyclonedx+json" {
			attached[artifact.Subject.Digest] = blobs[artifact.Layers[0].path()]
		}
	}
	all := map[string]image{}
	for _, m := range list.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		read(m.path(), &manifest)
		i := image{files: map[string][]byte{}, attached: attached[m.Digest]}
		read(manifest.Config.path(), &i)
		for _, layer := range manifest.Layers {
			for name, content := range extracted(t, blobs[layer.path()]) {
				i.files[strings.Trim(name, "/")] = content
			}
		}
		all[i.Architecture] = i
	}
	return all
}

// extracted are the files of a tar, compressed or not.
func extracted(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	var from io.Reader = bytes.NewReader(archive)
	if bytes.HasPrefix(archive, []byte{0x1f, 0x8b}) {
		plain, err := gzip.NewReader(from)
		if err != nil {
			t.Fatal(err)
		}
		from = plain
	}
	all := map[string][]byte{}
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// The image for each architecture has the program for it and nothing that could
// run another; it streams from its own root file system, which cannot be written,
// as its own user, by its own command.
func TestImage(t *testing.T) {
	wanted(t)
	if os.Getuid() != 0 {
		lacking(t, "only root can change the root")
	}
	needs(t, "buildah", "unshare", "chroot")
	dir := filepath.Join(t.TempDir(), "clone")
	run(t, in(".", "git", "clone", "-q", root, dir))
	storage := t.TempDir()
	buildah := []string{"--storage-driver", "vfs", "--root", filepath.Join(storage, "root"), "--runroot", filepath.Join(storage, "run")}
	build := in(dir, "make", "image", "VERSION="+version, "BUILDAH=buildah "+strings.Join(buildah, " "))
	build.Env = append(os.Environ(), "BUILDAH_ISOLATION=chroot")
	run(t, build)

	made := images(t, filepath.Join(dir, "dist/outbox-cdc-image.tar"))
	commit := strings.TrimSpace(run(t, in(dir, "git", "rev-parse", "HEAD")))
	for _, architecture := range []string{"amd64", "arm64"} {
		i := made[architecture]
		judgeProgram(t, i.files["usr/bin/outbox-cdc"], "linux_"+architecture)
		judgeBill(t, i.files["usr/share/doc/outbox-cdc/sbom.cdx.json"], i.files["usr/share/doc/outbox-cdc/THIRD-PARTY-LICENSES"])
		if !bytes.Equal(i.attached, i.files["usr/share/doc/outbox-cdc/sbom.cdx.json"]) {
			t.Errorf("%s: another bill of materials is attached, or none: %.100q", architecture, i.attached)
		}
		if c := i.Config; c.User != "65532:65532" || c.StopSignal != "SIGTERM" || len(c.ExposedPorts) != 1 {
			t.Errorf("%s: %+v", architecture, c)
		}
		if l := i.Config.Labels; l["org.opencontainers.image.version"] != version || l["org.opencontainers.image.revision"] != commit {
			t.Errorf("%s: labels %v", architecture, l)
		}
		for name := range i.files {
			if strings.HasPrefix(name, "usr/bin/") && name != "usr/bin/outbox-cdc" || strings.HasPrefix(name, "bin/") || strings.HasPrefix(name, "lib") {
				t.Errorf("%s: %s is in the image", architecture, name)
			}
		}
		if !bytes.Contains(i.files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")) {
			t.Errorf("%s: no certificates", architecture)
		}
	}

	said := func(args ...string) string {
		return strings.TrimSpace(run(t, exec.Command("buildah", append(buildah, args...)...)))
	}
	rootfs := said("mount", said("from", "--pull-never", "outbox-cdc:"+version))
	t.Cleanup(func() { said("rm", "--all") })
	streamsFrom(t, rootfs, made[runtime.GOARCH])
}

// streamsFrom runs init, check and the image's own command in its root.
func streamsFrom(t *testing.T, rootfs string, i image) {
	t.Helper()
	s := newSurroundings(t)
	configs := t.TempDir()
	if err := os.Chmod(configs, 0o755); err != nil { // another user reads it
		t.Fatal(err)
	}
	s.configure(filepath.Join(root, "deploy/docker/outbox-cdc.yaml"), filepath.Join(configs, "outbox-cdc.yaml"))
	const enter = `mount --bind "$1" "$1"
mount --bind "$2" "$1/etc/outbox-cdc"
mount -o remount,bind,ro "$1"
dir=$1 user=$3
shift 3
exec env -i PATH="$PATH" POSTGRES_PASSWORD="$POSTGRES_PASSWORD" TZ=Asia/Tokyo chroot --userspec="$user" "$dir" "$@"`
	inside := func(args ...string) *exec.Cmd {
		all := append([]string{"--mount", "--propagation", "private", "sh", "-ec", enter, "sh", rootfs, configs, i.Config.User}, i.Config.Entrypoint...)
		cmd := exec.Command("unshare", append(all, args...)...)
		cmd.Env = append(os.Environ(), "POSTGRES_PASSWORD="+s.password())
		return cmd
	}
	const config = "/etc/outbox-cdc/outbox-cdc.yaml"
	run(t, inside("init", "--native-table", "--config", config))
	if out := run(t, inside("check", "--config", config)); !strings.Contains(out, "orders") {
		t.Errorf("check said\n%s", out)
	}
	p := s.start(inside(i.Config.Cmd...))
	s.inserts()
	p.Stop(patience)
}
