package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// With --track the client knows the members of which --servers has one.
func TestTrack(t *testing.T) {
	for args, want := range map[string]int{"": 1, "--track": 3} {
		t.Run(args, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				given, _, _ := strings.Cut(w.Servers(), ",")
				e := &Ensemble{}
				flags := pflag.NewFlagSet("zkr", pflag.ContinueOnError)
				e.addFlags(flags)
				if err := flags.Parse(append(strings.Fields(args), "--servers", given)); err != nil {
					t.Fatal(err)
				}
				opts, err := e.Options()
				if err != nil {
					t.Fatal(err)
				}
				c, err := framework.New(e.Servers, append(opts, framework.WithDialer(w.Dial))...)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if err := c.WaitConnected(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if all := c.Servers(); len(all) != want {
					t.Errorf("%+v", all)
				}
			}, testutil.WithMembers(3))
		})
	}
}
