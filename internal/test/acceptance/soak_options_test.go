package acceptance_test

import (
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// Wider than those of a load: in a soak the machine is as busy as it gets.
const (
	soakSession = 6 * time.Second
	soakMargin  = 2 * time.Second
)

var soakOptions = []framework.Option{framework.WithSessionTimeout(soakSession), framework.WithStopMargin(soakMargin)}
