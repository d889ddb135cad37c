package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	helm "helm.sh/helm/v3/pkg/registry"
)

var quiet = registry.Logger(log.New(io.Discard, "", 0))

// two is a layout as buildah writes it, whose images hold other bills.
func two(t *testing.T) layout.Path {
	t.Helper()
	list := mutate.IndexMediaType(empty.Index, "application/vnd.oci.image.index.v1+json")
	for _, architecture := range []string{"amd64", "arm64"} {
		image, err := crane.Image(map[string][]byte{bill: []byte(`{"bomFormat": "CycloneDX", "for": "` + architecture + `"}`)})
		if err != nil {
			t.Fatal(err)
		}
		list = mutate.AppendManifests(list, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	at, err := layout.Write(t.TempDir(), empty.Index)
	if err == nil {
		err = at.AppendIndex(list)
	}
	if err == nil {
		err = attach(at)
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// In a registry, each image has one referrer: its own bill of materials. Registries that know no
// referrers have it by its tag (the specification's fallback).
func TestBillsAreAttached(t *testing.T) {
	for _, knows := range []bool{true, false} {
		server := httptest.NewServer(registry.New(quiet, registry.WithReferrersSupport(knows)))
		defer server.Close()
		to := strings.TrimPrefix(server.URL, "http://") + "/outbox-cdc:1.2.3"
		if err := pushTo(two(t), to); err != nil {
			t.Fatal(err)
		}
		tag, err := name.NewTag(to)
		if err != nil {
			t.Fatal(err)
		}
		list, err := remote.Index(tag)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := list.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, image := range manifest.Manifests {
			if got := referred(t, tag.Repository.Digest(image.Digest.String())); !strings.Contains(got, `"for": "`+image.Platform.Architecture+`"`) {
				t.Errorf("%s has the bill %q", image.Platform.Architecture, got)
			}
		}
	}
}

func referred(t *testing.T, image name.Digest) string {
	t.Helper()
	all, err := remote.Referrers(image)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != cycloneDX {
		t.Fatalf("%+v, %v", manifest, err)
	}
	artifact, err := remote.Image(image.Repository.Digest(manifest.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := artifact.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnImageWithoutABill(t *testing.T) {
	image, err := crane.Image(map[string][]byte{"etc/passwd": nil})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := billOf(image); err == nil || !strings.Contains(err.Error(), bill) {
		t.Error(err)
	}
}

// The chart is pushed to a registry by Helm's own client, as make chart-push does, and comes back as it was.
func TestTheChartIsPushed(t *testing.T) {
	server := httptest.NewServer(registry.New(quiet))
	defer server.Close()
	chart, err := loader.Load("../../helm/outbox-cdc")
	if err != nil {
		t.Fatal(err)
	}
	chart.Metadata.Version, chart.Metadata.AppVersion = "1.2.3", "1.2.3"
	file, err := chartutil.Save(chart, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := helm.NewClient(helm.ClientOptPlainHTTP(), helm.ClientOptWriter(io.Discard), helm.ClientOptCredentialsFile(filepath.Join(t.TempDir(), "none")))
	if err != nil {
		t.Fatal(err)
	}
	ref := strings.TrimPrefix(server.URL, "http://") + "/charts/outbox-cdc:1.2.3"
	if _, err := client.Push(content, ref); err != nil {
		t.Fatal(err)
	}
	back, err := client.Pull(ref)
	if err != nil || !bytes.Equal(back.Chart.Data, content) {
		t.Errorf("%v: other bytes came back", err)
	}
}
