// Package findings has the scripts that show what other software does; see README.md.
package findings

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestForm checks what README.md says about a script's form.
func TestForm(t *testing.T) {
	scripts, err := filepath.Glob("*.sh")
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) < 2 {
		t.Fatalf("found only %v", scripts)
	}
	for _, name := range scripts {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("bash", "-n", name).CombinedOutput(); err != nil {
				t.Errorf("bash does not read it: %s", out)
			}
			if name == "lib.sh" {
				return
			}
			if info, err := os.Stat(name); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("is not executable: %v %v", info.Mode(), err)
			}
			checkForm(t, string(content))
		})
	}
}

var (
	header   = regexp.MustCompile(`\A#!/usr/bin/env bash\n# Expected: +\S(.*\n#  )*.*\n# Happens: +\S(.*\n#  )*.*\n# Who: +\S(.*\n#  )*.*\n# Version: +\S.*\d.*\n# Date: +20\d\d-\d\d-\d\d\n\. "\$\(dirname "\$0"\)/lib\.sh"\n`)
	pinned   = regexp.MustCompile(`\d+\.\d+(\.\d+|rc\d+)?`)
	unpinned = regexp.MustCompile(`(?i)[@:=](latest|RELEASE)\b|-SNAPSHOT|@\^|>=`)
)

func checkForm(t *testing.T, content string) {
	t.Helper()
	if !header.MatchString(content) {
		t.Error("does not begin with Expected, Happens, Who, Version, Date, and lib.sh")
	}
	body := header.ReplaceAllString(content, "")
	if !strings.Contains(body, "\nexpect ") || !strings.HasSuffix(body, "\ndone_here\n") {
		t.Error("states no fact by expect, or does not end with done_here")
	}
	_, version, _ := strings.Cut(content, "# Version:")
	version, _, _ = strings.Cut(version, "\n")
	for _, v := range pinned.FindAllString(version, -1) {
		if !strings.Contains(body, v) {
			t.Errorf("names version %s, and does not pin it", v)
		}
	}
	if bad := unpinned.FindString(body); bad != "" {
		t.Errorf("has a version that moves: %s", bad)
	}
}
