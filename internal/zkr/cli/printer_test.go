package cli

import (
	"strings"
	"testing"
	"time"
)

// TestPrinterIsSafe: the names of a command, a path or a znode in what a
// printer prints cannot command the terminal, nor reverse the text behind them.
func TestPrinterIsSafe(t *testing.T) {
	var out strings.Builder
	Say(&out, time.Minute, "zkr: /x\u202e: \x1b[2J gets SIGTERM now\nand more\n")
	if want := `zkr: /x\u202e: \x1b[2J gets SIGTERM now` + "\nand more\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
