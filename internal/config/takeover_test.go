package config

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The configurations of the takeover pages are right.
func TestTakeoverPagesConfigurations(t *testing.T) {
	t.Setenv("KAFKA_BROKERS", "localhost:9092")
	t.Setenv("DATABASE_URL", "postgres://app@localhost/orders")
	pages, err := filepath.Glob("../../docs/takeover/*.md")
	if err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile("(?s)```yaml\n(kafka:.*?)```")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := whole.FindAllSubmatch(text, -1)
		if len(blocks) == 0 && filepath.Base(page) != "README.md" {
			t.Errorf("%s has no configuration", page)
		}
		for _, b := range blocks {
			if _, err := Parse(b[1], page, "."); err != nil {
				t.Error(err)
			}
		}
	}
}
