package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// redacted is printed in place of a secret.
const redacted = "[secret]"

// Secret is a string that is never printed: every way of formatting or
// marshalling it gives a placeholder. Reveal is the one way out.
type Secret struct{ value string }

// Reveal returns the value. The receiver must not print it either.
func (s Secret) Reveal() string { return s.value }

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == "" }

// String returns a placeholder, or "" if there is no value.
func (s Secret) String() string {
	if s.Empty() {
		return ""
	}
	return redacted
}

// Format writes the placeholder for every verb, including %x and %#v.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText returns the placeholder, for JSON, YAML and loggers.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Bytes is a size in bytes. It is written with a unit: 512B, 64KiB, 8MiB, 1GiB (powers of 1024), or kB, MB,
// GB (powers of 1000).
type Bytes int64

var units = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
}

// ParseBytes parses a size such as 64MiB.
func ParseBytes(text string) (Bytes, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || n < 0 || math.IsNaN(n) || n*float64(u.size) >= math.MaxInt64 {
			break
		}
		return Bytes(n * float64(u.size)), nil
	}
	return 0, fmt.Errorf("%q is not a size: write a number and a unit, for example 64MiB", text)
}

// String returns the size in the largest binary unit that divides it.
func (b Bytes) String() string {
	for _, u := range units[:4] {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// MarshalText returns the size as String does, for JSON and YAML.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// Value is a text that a column is compared with, or null.
type Value struct {
	Text string
	Null bool
}

// MarshalYAML returns the value as it is written in a file.
func (v Value) MarshalYAML() (any, error) {
	if v.Null {
		return nil, nil
	}
	return v.Text, nil
}

// values separates a list into its texts and whether it contains null.
func values(list []Value) (texts []string, null bool) {
	for _, v := range list {
		if v.Null {
			null = true
			continue
		}
		texts = append(texts, v.Text)
	}
	return texts, null
}

// Path is the path of a file. Load makes it absolute: a relative path starts at the configuration file's
// folder.
type Path string
