package cache_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// States are spelled the same wherever they are printed: a log had CONNECTED
// and STANDING beside synced.
func TestStatesAreSpelledInCapitals(t *testing.T) {
	var all []fmt.Stringer
	for s := framework.Connecting; s <= framework.Closed; s++ {
		all = append(all, s)
	}
	for s := presence.Pending; s <= presence.Closed; s++ {
		all = append(all, s)
	}
	for s := cache.Syncing; s <= cache.Closed; s++ {
		all = append(all, s)
	}
	for _, s := range all {
		if text := s.String(); text == "" || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			t.Errorf("%T: %q", s, text)
		}
	}
}
