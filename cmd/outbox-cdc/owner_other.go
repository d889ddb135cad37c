//go:build !linux

package main

import "errors"

func strangerAt(string) (string, error) {
	return "", errors.New("this system does not tell whose a port is")
}
