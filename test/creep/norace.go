//go:build !race

package creep

const raceDetector = false
