package cli

import (
	"fmt"
	"slices"
	"strings"
)

// EnumFlag is a flag with a fixed set of names, each with a value. The first is
// the default.
type EnumFlag[T any] struct {
	Names  []string
	Values []T
	chosen int
}

func (c *EnumFlag[T]) Set(name string) error {
	i := slices.Index(c.Names, name)
	if i < 0 {
		return fmt.Errorf("want one of: %s", strings.Join(c.Names, ", "))
	}
	c.chosen = i
	return nil
}

func (c *EnumFlag[T]) String() string {
	if len(c.Names) == 0 { // pflag calls it on a zero value
		return ""
	}
	return c.Names[c.chosen]
}

// Type returns what the help shows as the flag's argument.
func (c *EnumFlag[T]) Type() string { return strings.Join(c.Names, "|") }

func (c *EnumFlag[T]) Value() T { return c.Values[c.chosen] }
