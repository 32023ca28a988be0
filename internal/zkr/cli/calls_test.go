package cli

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestNoEnsembleSaysWhatEachMemberDid: the error of a client that finds no
// ensemble says for each member whether it refuses, is silent, accepts without
// a quorum, or was not called.
func TestNoEnsembleSaysWhatEachMemberDid(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t, testutil.WithMembers(3))
	for _, member := range []int{0, 1} {
		if err := e.Stop(member); err != nil {
			t.Fatal(err)
		}
	}
	at := strings.Split(e.Servers(), ",") // the third one has no quorum
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	held, err := net.Dial("tcp", silent.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	refuses := held.LocalAddr().String() // unlike the port of a stopped member, no other process can take it
	for _, test := range []struct {
		servers string
		says    []string
	}{
		{refuses + "," + at[2] + "," + silent.Addr().String(), []string{
			refuses + " refuses connections", at[2] + " accepts connections but closes them: it has no quorum",
			silent.Addr().String() + " accepts connections but is silent",
		}},
		{"nobody.invalid," + refuses + "/x", []string{refuses + " refuses connections", "nobody.invalid:2181 cannot be resolved"}},
	} {
		t.Run(test.servers, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			// A silent member is left after a third of the session timeout.
			code := zkrtest.Run([]string{"get", "--servers", test.servers, "--connect-timeout", "5s", "--session-timeout", "3s", "/x"}, &out, &out)
			for _, says := range test.says {
				if code != ExitNoEnsemble || !strings.Contains(out.String(), says) {
					t.Errorf("exit code %d: %s; want in it: %s", code, out.String(), says)
				}
			}
			if strings.Count(out.String(), "\n") != 1 {
				t.Errorf("more than one line: %s", out.String())
			}
		})
	}
}
