package cli_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func TestMain(m *testing.M) {
	cli.AllCommands = zkr.Commands
	zkrtest.Main(m, zkr.Main, func() { cli.AWhile = time.Hour })
}
