package run

import (
	"fmt"
	"strconv"
)

// codeFlag is a flag whose value is an exit code.
type codeFlag struct {
	code  int
	least int // 0, or 1 for a code that must not mean success
}

func (c *codeFlag) Set(text string) error {
	code, err := strconv.Atoi(text)
	if err != nil || code < c.least || code > 255 {
		return fmt.Errorf("want an exit code from %d to 255", c.least)
	}
	c.code = code
	return nil
}

func (c *codeFlag) String() string { return strconv.Itoa(c.code) }

// Type returns what the help shows as the flag's argument.
func (c *codeFlag) Type() string { return "code" }
