package serve

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

func TestJSONIsDocumented(t *testing.T) {
	zkrtest.JSONIsDocumented(t, map[string]any{
		"`zkr bench`":  figures{},
		"`zkr doctor`": doctor.Answer{},
	})
}
