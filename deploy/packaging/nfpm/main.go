// Command nfpm builds the .deb and .rpm of one binary, as the section nfpms of
// .goreleaser.yaml describes them and with the library that goreleaser uses. It
// is for tests and for those who want a package without a release.
package main

import (
	"bytes"
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"text/template"
	"time"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

func main() {
	binary := flag.String("binary", "", "the program")
	version := flag.String("version", "", "the packages' version")
	out := flag.String("out", "", "folder to write to")
	flag.Parse()
	paths, err := build(*binary, *version, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nfpm:", err)
		os.Exit(1)
	}
	for _, path := range paths {
		fmt.Println(path)
	}
}

// build makes every format's package and returns their paths.
func build(binary, version, out string) ([]string, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	out, err = filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chdir(filepath.Join("..", "..")); err != nil { // paths of .goreleaser.yaml begin there
		return nil, err
	}
	project, err := config.Load(".goreleaser.yaml")
	if err != nil {
		return nil, fmt.Errorf("read .goreleaser.yaml: %w", err)
	}
	var paths []string
	for _, wanted := range project.NFPMs {
		for _, format := range wanted.Formats {
			path, err := one(wanted, format, binary, version, out)
			if err != nil {
				return nil, fmt.Errorf("package %s: %w", format, err)
			}
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func one(wanted config.NFPM, format, binary, version, out string) (string, error) {
	info, err := describe(wanted, format, binary, version)
	if err != nil {
		return "", err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	var content bytes.Buffer
	if err := packager.Package(info, &content); err != nil {
		return "", err
	}
	path := filepath.Join(out, packager.ConventionalFileName(info))
	return path, os.WriteFile(path, content.Bytes(), 0o644)
}

// describe translates goreleaser's description into the library's, as
// goreleaser does.
func describe(wanted config.NFPM, format, binary, version string) (*nfpm.Info, error) {
	committed, err := commitTime(binary)
	if err != nil {
		return nil, err
	}
	contents := files.Contents{{Source: binary, Destination: wanted.Bindir + "/outbox-cdc", FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: committed}}}
	for _, c := range wanted.Contents {
		source, err := render(c.Source)
		if err != nil {
			return nil, err
		}
		contents = append(contents, &files.Content{
			Source: source, Destination: c.Destination, Type: c.Type,
			FileInfo: &files.ContentFileInfo{Mode: c.FileInfo.Mode, Owner: c.FileInfo.Owner, Group: c.FileInfo.Group, MTime: committed},
		})
	}
	depends := wanted.Dependencies
	if special := wanted.Overrides[format].Dependencies; special != nil {
		depends = special
	}
	return &nfpm.Info{
		Name: wanted.PackageName, Arch: runtime.GOARCH, Platform: "linux", Version: version,
		Section: wanted.Section, Priority: wanted.Priority, Maintainer: wanted.Maintainer, Vendor: wanted.Vendor,
		Homepage: wanted.Homepage, License: wanted.License, Description: wanted.Description, MTime: committed,
		Overridables: nfpm.Overridables{
			Umask: wanted.Umask, Depends: depends, Recommends: wanted.Recommends, Contents: contents,
			Scripts: nfpm.Scripts{
				PreInstall: wanted.Scripts.PreInstall, PostInstall: wanted.Scripts.PostInstall,
				PreRemove: wanted.Scripts.PreRemove, PostRemove: wanted.Scripts.PostRemove,
			},
			RPM: nfpm.RPM{BuildHost: wanted.RPM.BuildHost},
		},
	}, nil
}

// render fills in a template of .goreleaser.yaml, with the fields used there.
func render(text string) (string, error) {
	t, err := template.New("path").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]string{"Os": "linux", "Arch": runtime.GOARCH})
	return out.String(), err
}

// commitTime is when the commit was made that the binary is built from. The
// packages bear it, so that the same commit makes the same packages.
func commitTime(binary string) (time.Time, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return time.Time{}, err
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			return time.Parse(time.RFC3339, s.Value)
		}
	}
	return time.Time{}, fmt.Errorf("%s does not say which commit it is built from: build it with -buildvcs=true in a git checkout", binary)
}
