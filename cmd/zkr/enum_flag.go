package main

import (
	"fmt"
	"slices"
	"strings"
)

// enumFlag is a flag with a fixed set of names, each with a value. The first is
// the default.
type enumFlag[T any] struct {
	names  []string
	values []T
	chosen int
}

func (c *enumFlag[T]) Set(name string) error {
	i := slices.Index(c.names, name)
	if i < 0 {
		return fmt.Errorf("want one of: %s", strings.Join(c.names, ", "))
	}
	c.chosen = i
	return nil
}

func (c *enumFlag[T]) String() string {
	if len(c.names) == 0 { // pflag calls it on a zero value
		return ""
	}
	return c.names[c.chosen]
}

// Type returns what the help shows as the flag's argument.
func (c *enumFlag[T]) Type() string { return strings.Join(c.names, "|") }

func (c *enumFlag[T]) value() T { return c.values[c.chosen] }
