//go:build !unix

package zkrtest

// command does nothing: the tests that run a command need signals.
func command() {}

func closeReal() {}
