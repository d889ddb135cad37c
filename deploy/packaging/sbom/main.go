// Command sbom writes what a built program has linked in: sbom.cdx.json, a
// CycloneDX bill of materials, and THIRD-PARTY-LICENSES, the licences' texts. It
// reads the list out of the binary itself, so that what is only used by tests is
// not in it, and fails on a licence that it does not know. It is run for each
// binary of a release.
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	binary := flag.String("binary", "", "the program")
	version := flag.String("version", "", "its version")
	dir := flag.String("dir", "", "folder to write to")
	flag.Parse()
	if err := write(*binary, *version, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(binary, version, dir string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read what is linked into %s: %w", binary, err)
	}
	licences, err := licencesOf(info.Deps)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	bill, err := billOf(info, version, licences)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "sbom.cdx.json"), bill, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "THIRD-PARTY-LICENSES"), texts(licences), 0o644)
}

// billOf is the bill of materials. It has no serial number and no time, so that
// the same binary has the same bill.
func billOf(info *debug.BuildInfo, version string, licences []licence) ([]byte, error) {
	main := component(cdx.ComponentTypeApplication, info.Main.Path, version, "Apache-2.0")
	parts := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", info.GoVersion, "BSD-3-Clause")}
	refs := []string{parts[0].BOMRef}
	for _, l := range licences {
		part := component(cdx.ComponentTypeLibrary, l.module.Path, l.module.Version, l.id)
		parts, refs = append(parts, part), append(refs, part.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

func component(kind cdx.ComponentType, path, version, spdx string) cdx.Component {
	license := &cdx.License{ID: spdx}
	if spdx == publicDomain {
		license = &cdx.License{Name: spdx}
	}
	url := "pkg:golang/" + path + "@" + version // as the package-url specification has it for Go
	return cdx.Component{
		Type: kind, BOMRef: url, Name: path, Version: version, PackageURL: url,
		Licenses: &cdx.Licenses{{License: license}},
	}
}

func texts(licences []licence) []byte {
	var out bytes.Buffer
	for _, l := range licences {
		fmt.Fprintf(&out, "==== %s %s (%s)\n\n", l.module.Path, l.module.Version, l.id)
		for _, text := range l.texts {
			out.Write(bytes.TrimRight(text, "\n"))
			out.WriteString("\n\n")
		}
	}
	return out.Bytes()
}

// folders says where the modules' sources are; those that are missing are fetched.
func folders(modules []*debug.Module) (map[string]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.Path+"@"+m.Version)
	}
	out, err := exec.Command("go", args...).Output() // #nosec G204 -- names of modules
	if err != nil {
		return nil, fmt.Errorf("fetch the modules: %w: %s", err, out)
	}
	where := map[string]string{}
	for list := json.NewDecoder(bytes.NewReader(out)); list.More(); {
		var one struct{ Path, Dir string }
		if err := list.Decode(&one); err != nil {
			return nil, fmt.Errorf("read the list of modules: %w", err)
		}
		where[one.Path] = one.Dir
	}
	return where, nil
}

func sorted(modules []*debug.Module) []*debug.Module {
	return slices.SortedFunc(slices.Values(modules), func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
}
