// Command image attaches to each architecture's image in an OCI layout the bill of materials
// that is in it, as a referrer (OCI 1.1); with -push it pushes the layout as it is.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	dir := flag.String("layout", "", "the OCI layout: one list of images")
	push := flag.String("push", "", "push to REGISTRY/NAME:TAG what was attached before, and print the digest")
	flag.Parse()
	err := errors.New("-layout is missing")
	if *push != "" {
		err = pushTo(layout.Path(*dir), *push)
	} else if *dir != "" {
		err = attach(layout.Path(*dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// contents are the list of images, which comes first, and what refers to them.
func contents(at layout.Path) (v1.ImageIndex, []v1.Descriptor, error) {
	top, err := at.ImageIndex()
	if err != nil {
		return nil, nil, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, nil, err
	}
	if len(manifest.Manifests) == 0 {
		return nil, nil, errors.New("the layout is empty")
	}
	list, err := top.ImageIndex(manifest.Manifests[0].Digest)
	return list, manifest.Manifests[1:], err
}

func attach(at layout.Path) error {
	list, _, err := contents(at)
	if err != nil {
		return err
	}
	manifest, err := list.IndexManifest()
	if err != nil {
		return err
	}
	for _, subject := range manifest.Manifests {
		image, err := list.Image(subject.Digest)
		if err != nil {
			return err
		}
		bill, err := billOf(image)
		if err != nil {
			return fmt.Errorf("%s: %w", subject.Digest, err)
		}
		if err := refer(at, subject, bill); err != nil {
			return err
		}
	}
	return nil
}

// bill is where an image has its bill of materials, see make image-root.
const bill = "usr/share/doc/outbox-cdc/sbom.cdx.json"

func billOf(image v1.Image) ([]byte, error) {
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", bill, err)
		}
		if strings.TrimPrefix(header.Name, "/") == bill {
			return io.ReadAll(r)
		}
	}
}

// cycloneDX is the type of the artifact, and of its empty configuration: what knows no artifactType
// goes by that.
const cycloneDX = "application/vnd.cyclonedx+json"

// refer writes an artifact whose subject is the image.
// https://github.com/opencontainers/image-spec/blob/v1.1.0/manifest.md#guidelines-for-artifact-usage
func refer(at layout.Path, subject v1.Descriptor, bill []byte) error {
	config, err := stored(at, cycloneDX, []byte("{}"))
	if err != nil {
		return err
	}
	layer, err := stored(at, cycloneDX, bill)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     types.MediaType `json:"mediaType"`
		ArtifactType  string          `json:"artifactType"`
		Config        v1.Descriptor   `json:"config"`
		Layers        []v1.Descriptor `json:"layers"`
		Subject       v1.Descriptor   `json:"subject"`
	}{2, types.OCIManifestSchema1, cycloneDX, config, []v1.Descriptor{layer}, v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}})
	if err != nil {
		return err
	}
	artifact, err := stored(at, types.OCIManifestSchema1, raw)
	if err != nil {
		return err
	}
	artifact.ArtifactType = cycloneDX
	return at.AppendDescriptor(artifact)
}

func stored(at layout.Path, kind types.MediaType, content []byte) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: kind, Digest: digest, Size: size}, at.WriteBlob(digest, io.NopCloser(bytes.NewReader(content)))
}

// artifact is a manifest as it is in the layout.
type artifact []byte

func (a artifact) RawManifest() ([]byte, error)        { return a, nil }
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func pushTo(at layout.Path, to string) error {
	tag, err := name.NewTag(to)
	if err != nil {
		return err
	}
	list, artifacts, err := contents(at)
	if err != nil {
		return err
	}
	access := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if err := remote.WriteIndex(tag, list, access); err != nil {
		return err
	}
	for _, a := range artifacts {
		if err := pushArtifact(at, tag.Repository, a, access); err != nil {
			return err
		}
	}
	digest, err := list.Digest()
	if err == nil {
		fmt.Println(tag.Repository.Digest(digest.String()))
	}
	return err
}

func pushArtifact(at layout.Path, to name.Repository, a v1.Descriptor, access remote.Option) error {
	raw, err := at.Bytes(a.Digest)
	if err != nil {
		return err
	}
	var manifest v1.Manifest
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return err
	}
	for _, d := range append(manifest.Layers, manifest.Config) {
		content, err := at.Bytes(d.Digest)
		if err != nil {
			return err
		}
		if err := remote.WriteLayer(to, static.NewLayer(content, d.MediaType), access); err != nil {
			return err
		}
	}
	return remote.Put(to.Digest(a.Digest.String()), artifact(raw), access)
}
