package checkpoint

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"regexp"
	"testing"
)

var hashSeeds = flag.Int("hash.seeds", 1000, "")
var hashPtr = regexp.MustCompile(`0x[0-9a-f]+`)

func TestZZHash(t *testing.T) {
	for s := 1; s <= *hashSeeds; s++ {
		one := sha256.New()
		simulate(uint64(s), switches{}, -1, func(format string, args ...any) {
			one.Write(hashPtr.ReplaceAll(fmt.Appendf(nil, format+"\n", args...), nil))
		})
		fmt.Printf("S %d %x\n", s, one.Sum(nil)[:6])
	}
}
