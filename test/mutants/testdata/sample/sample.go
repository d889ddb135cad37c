// Package sample is what the tests of mutants are about.
package sample

// Clamp returns n, but no more than limit.
func Clamp(n, limit int, seen *int) int {
	*seen++
	if n > limit {
		n = limit
	}
	return n
}

// Both needs both.
func Both(a, b bool) bool { return a && b }

// Loop counts to n.
func Loop(n int) (sum int) {
	for i := 0; i < n; i++ {
		sum += i
	}
	return sum
}
