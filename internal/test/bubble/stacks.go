package bubble

import "github.com/zkrecipes/zkrecipes/internal/goroutines"

// Name returns the name of the caller's bubble.
func Name() string { return goroutines.Bubble() }

// Stacks returns the stacks of a bubble's goroutines.
func Stacks(bubble string) []string { return goroutines.In(bubble) }
