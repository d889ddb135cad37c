package config

import (
	"fmt"

	"github.com/goccy/go-yaml"
)

// inForce is what a stream runs with.
type inForce struct {
	Stream   *Stream             `yaml:"stream"`
	Clusters map[string]*Cluster `yaml:"kafka_clusters"`
}

// InForce prints what a stream runs with as YAML: defaults filled in, profiles
// resolved, secrets and what is empty left out.
func (c *Config) InForce(s *Stream) (string, error) {
	text, err := yaml.MarshalWithOptions(inForce{s, c.Kafka.Clusters}, yaml.Indent(2), yaml.OmitZero())
	if err != nil {
		return "", fmt.Errorf("print the configuration of stream %s: %w", s.Name, err)
	}
	return string(text), nil
}
