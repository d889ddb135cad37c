//go:build !race

package checkpoint

const (
	defaultSeeds = 5000
	ruleSeeds    = 8000
)
