package znode

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

func TestJSONIsDocumented(t *testing.T) {
	zkrtest.JSONIsDocumented(t, map[string]any{
		"`zkr ls`, `stat`": znode{},
		"`zkr tree`":       twig{},
		"`zkr watch`":      change{},
		"`zkr counter`":    counted{},
		"`zkr rm`":         removedZnode{},
	})
}
