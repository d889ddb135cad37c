//go:build !failpoints

package failpoint

// Here does nothing: this binary was built without failpoints.
func Here(string) error { return nil }
