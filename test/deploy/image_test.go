package deploy

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A version may have a +, which a tag may not; and environments have a variable ARCH,
// which is not about the image.
func TestTagAndArchitectureOfTheImage(t *testing.T) {
	cmd := exec.Command("make", "-n", "--no-print-directory", "image", "image-push", "VERSION=1.2.3-rc1+7", "PLATFORMS=amd64")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "ARCH=sparc", "MAKEFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commands := string(out)
	for _, want := range []string{"outbox-cdc:1.2.3-rc1_7 ", "-push outbox-cdc:1.2.3-rc1_7", "VERSION=1.2.3-rc1+7 ", "GOARCH=amd64 "} {
		if !strings.Contains(commands, want) {
			t.Errorf("no command has %q", want)
		}
	}
	for _, wrong := range []string{"outbox-cdc:1.2.3-rc1+7", "sparc"} {
		if strings.Contains(commands, wrong) {
			t.Errorf("a command has %q", wrong)
		}
	}
	if t.Failed() {
		t.Log(commands)
	}
}

// What a release is made of is made, pushed and signed, in this order.
func TestARelease(t *testing.T) {
	cmd := exec.Command("make", "-n", "--no-print-directory", "release", "VERSION=1.2.3", "PLATFORMS=amd64", "IMAGE=registry.example/outbox-cdc", "CHARTS=oci://registry.example/charts")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "MAKEFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rest := string(out)
	for _, want := range []string{
		" release --clean", "-push registry.example/outbox-cdc:1.2.3 ", "helm push dist/outbox-cdc-1.2.3.tgz oci://registry.example/charts",
		"cosign sign --yes --recursive", "cosign attest --yes --type=slsaprovenance1", "cosign sign --yes registry.example/charts/outbox-cdc:1.2.3",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("%q is missing, or too early, in\n%s", want, out)
		}
		rest = after
	}
}
