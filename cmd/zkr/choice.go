package main

import (
	"fmt"
	"slices"
	"strings"
)

// choice is a flag that takes one of a few names, each for a value. The first is the default.
type choice[T any] struct {
	names  []string
	values []T
	chosen int
}

func (c *choice[T]) Set(name string) error {
	i := slices.Index(c.names, name)
	if i < 0 {
		return fmt.Errorf("want %s", strings.Join(c.names, " or "))
	}
	c.chosen = i
	return nil
}

func (c *choice[T]) String() string {
	if len(c.names) == 0 { // pflag asks a zero value, too
		return ""
	}
	return c.names[c.chosen]
}

// Type is what the help shows as the flag's argument.
func (c *choice[T]) Type() string { return strings.Join(c.names, "|") }

func (c *choice[T]) value() T { return c.values[c.chosen] }
