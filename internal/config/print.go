package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/goccy/go-yaml"
)

// InForce returns, as YAML, the configuration that a stream runs with: defaults filled in, profiles resolved,
// without secrets and without empty values.
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

// Hash returns the beginning of the SHA-256 of the configuration in force. Secrets are left out, so that the
// hash cannot confirm a guess at one.
func (c *Config) Hash() string {
	shown := struct {
		Kafka   *Kafka    `yaml:"kafka"`
		Streams []*Stream `yaml:"streams"`
		HTTP    *HTTP     `yaml:"http"`
		Servers []string  `yaml:"servers"` // from the connection strings, which are secret as a whole
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
