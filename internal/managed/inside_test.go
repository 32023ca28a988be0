package managed_test

import (
	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// insideOf returns what a client is inside this module.
func insideOf(c *framework.Client) *managed.Client { return (*managed.Client)(c) }

// inside returns what a session is inside this module.
func inside(s *framework.Session) *managed.Session { return (*managed.Session)(s) }
