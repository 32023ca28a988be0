package run

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

func TestJSONIsDocumented(t *testing.T) {
	zkrtest.JSONIsDocumented(t, map[string]any{
		"`zkr join`":         joined{},
		"`zkr lock`, `read`": grant{},
	})
}
