//go:build !failpoints

package failpoint

// Hit does nothing: this binary was built without failpoints.
func Hit(string) {}
