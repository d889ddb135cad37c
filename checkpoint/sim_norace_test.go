//go:build !race

package checkpoint

const (
	defaultSeeds = 3000
	ruleSeeds    = 8000
)
