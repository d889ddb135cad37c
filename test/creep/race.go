//go:build race

package creep

const raceDetector = true
