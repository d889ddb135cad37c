// Package docs tests the documentation as its reader would: every fenced block of README.md
// and docs is parsed, and run on real servers as it is written there.
package docs
