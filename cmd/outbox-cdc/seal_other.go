//go:build !linux

package main

// seal is for Linux.
func seal() {}
