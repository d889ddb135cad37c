package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/goccy/go-yaml"
)

// InForce prints what a stream runs with as YAML: defaults filled in, profiles
// resolved, secrets and what is empty left out.
func (c *Config) InForce(s *Stream) (string, error) {
	inForce := struct {
		Stream   *Stream             `yaml:"stream"`
		Clusters map[string]*Cluster `yaml:"kafka_clusters"`
	}{s, c.Kafka.Clusters}
	text, err := yaml.MarshalWithOptions(inForce, yaml.Indent(2), yaml.OmitZero())
	if err != nil {
		return "", fmt.Errorf("print the configuration of stream %s: %w", s.Name, err)
	}
	return string(text), nil
}

// Hash is the beginning of the SHA-256 of what the process runs with, secrets
// left out, so that it tells nobody whether a guess at one is right.
func (c *Config) Hash() string {
	shown := struct {
		Kafka   *Kafka    `yaml:"kafka"`
		Streams []*Stream `yaml:"streams"`
		HTTP    *HTTP     `yaml:"http"`
		Servers []string  `yaml:"servers"` // of the connection strings, which are secrets as a whole
	}{&c.Kafka, c.Streams, &c.HTTP, nil}
	for _, s := range c.Streams {
		shown.Servers = append(shown.Servers, fmt.Sprint(s.Postgres.User, "@", s.Postgres.Host, ":", s.Postgres.Port, "/", s.Postgres.Database))
	}
	text, err := yaml.MarshalWithOptions(shown, yaml.OmitZero())
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
