//go:build manual

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// There is one page for each command, except hidden ones.
func TestManualPages(t *testing.T) {
	var out bytes.Buffer
	dir := filepath.Join(t.TempDir(), "pages")
	if code := execute([]string{"man", "--dir", dir}, streams{out: &out, err: &out}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	for _, name := range []string{"outbox-cdc", "outbox-cdc-run", "outbox-cdc-config-validate"} {
		if _, err := os.Stat(filepath.Join(dir, name+".1")); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "outbox-cdc-man.1")); err == nil {
		t.Error("a hidden command has a page")
	}
	page, err := os.ReadFile(filepath.Join(dir, "outbox-cdc-run.1"))
	if err != nil || !bytes.Contains(page, []byte("drain_timeout")) {
		t.Errorf("the page of run says nothing of drain_timeout (%v)", err)
	}
}
