//go:build race

package checkpoint

// The race detector makes everything several times slower, and there is one
// goroutine per world.
const (
	defaultSeeds = 300
	ruleSeeds    = 0
)
