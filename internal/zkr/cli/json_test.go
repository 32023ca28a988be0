package cli

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

func TestJSONIsDocumented(t *testing.T) {
	zkrtest.JSONIsDocumented(t, map[string]any{
		"`zkr version`": build{},
	})
}
