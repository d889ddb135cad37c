package config

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/outbox-cdc/outbox-cdc/internal/secret"
)

// Credential is a secret: a text, or its place, which is read whenever the secret is
// needed: {file: PATH} or {command: [PROGRAM, ARGUMENT]}.
type Credential struct {
	// File has the secret, at most 64 KiB; one newline at its end is dropped. It is read for
	// every connection.
	File Path `yaml:"file"`
	// Command prints the secret: a program and its arguments, run without a shell for every
	// connection. One newline at the end is dropped.
	Command []string `yaml:"command"`
	// Environment names variables that the command gets in addition to PATH, HOME, USER, LOGNAME,
	// LANG, LC_ALL, TZ, TMPDIR, SSL_CERT_FILE and SSL_CERT_DIR.
	Environment []string `yaml:"environment" example:"[AWS_REGION, AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE]"`
	// Timeout of the command. It is then killed, with all that it started.
	Timeout time.Duration `yaml:"timeout" default:"10s" min:"100ms" max:"5m"`
	// Cache is how long the command's output is used again, unless the server refuses it.
	Cache time.Duration `yaml:"cache" default:"0s" min:"0s" max:"24h"`

	value  Secret
	source *secret.Source
}

// NewCredential returns a Credential whose secret is the text.
func NewCredential(text string) *Credential {
	return &Credential{value: Secret{text}, source: &secret.Source{Value: text}}
}

// Given reports whether a secret is configured.
func (c *Credential) Given() bool {
	return c != nil && (!c.value.Empty() || c.File != "" || len(c.Command) > 0)
}

// Read returns the secret as it is now.
func (c *Credential) Read(ctx context.Context) (string, error) {
	if c == nil || c.source == nil {
		return "", nil
	}
	return c.source.Read(ctx)
}

// Reader returns a function that reads the secret for each connection; nil: no secret is configured.
func (c *Credential) Reader() secret.Reader {
	if !c.Given() || c.source == nil {
		return nil
	}
	return c.source
}

// Static returns the secret if it is written as a text. fixed is false if the secret is read from a file or a
// command.
func (c *Credential) Static() (text string, fixed bool) {
	if c == nil {
		return "", true
	}
	return c.value.Reveal(), c.File == "" && len(c.Command) == 0
}

// MarshalYAML returns where the secret is, never the secret itself.
func (c *Credential) MarshalYAML() (any, error) {
	switch {
	case c.File != "":
		return map[string]any{"file": string(c.File)}, nil
	case len(c.Command) > 0:
		return map[string]any{"command": c.Command[0], "timeout": c.Timeout.String(), "cache": c.Cache.String()}, nil
	}
	return c.value.String(), nil
}

// MarshalJSON returns a placeholder, or an empty string if the secret is not a text.
func (c *Credential) MarshalJSON() ([]byte, error) { return []byte(`"` + c.value.String() + `"`), nil }

// String returns a placeholder, or an empty string if the secret is not a text.
func (c *Credential) String() string { return c.value.String() }

// Format writes the placeholder for every verb.
func (c *Credential) Format(f fmt.State, verb rune) {
	if c != nil {
		c.value.Format(f, verb)
	}
}

// bindCredential binds a text, or a map that says where the secret is.
func (b *binder) bindCredential(to reflect.Value, n ast.Node, path string) {
	c, _ := reflect.TypeAssert[*Credential](to.Addr())
	if _, keys := b.pairs(n); !keys {
		b.bindScalar(reflect.ValueOf(&c.value).Elem(), n, path, "")
		*c = *NewCredential(c.value.Reveal())
		return
	}
	b.bindStruct(to, n, path)
	if !b.hasProblem(path) && (c.File == "") == (len(c.Command) == 0) {
		b.complain(path, "has not exactly one of file and command", "write {file: /run/secrets/password} or {command: [get-password, orders]}, or the text itself")
	}
	b.secretFiles = append(b.secretFiles, string(c.File))
	if at := b.find(path); c.File != "" {
		b.credentials = append(b.credentials, Problem{File: b.file, Line: at.line, Column: at.column, Path: path, Found: string(c.File)})
	}
	c.source = &secret.Source{File: string(c.File), Command: c.Command, Environment: c.Environment, Timeout: c.Timeout, Cache: c.Cache}
}

// UnreadableSecrets returns a problem for each file with a secret that cannot be read now. Load does not
// check this, since a file may appear later; it is read again for every connection.
func (c *Config) UnreadableSecrets(ctx context.Context) (problems Problems) {
	for _, p := range c.credentials {
		if _, err := (&secret.Source{File: p.Found}).Read(ctx); err != nil {
			p.Found, p.Hint = err.Error(), "have the file there, readable for the user that runs outbox-cdc"
			problems = append(problems, p)
		}
	}
	return problems
}
