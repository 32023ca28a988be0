package managed_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// ReadAll on the real server, over lost connections and lost answers.
func TestReadAllOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	network := ens.ClientNet("reader")
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithDialer(network.Dial))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	reads := library(t, c, 1000)
	s := session(t, c)
	for range 3 {
		found, err := inside(s).ReadAll(t.Context(), reads...)
		checkLibrary(t, reads, found, err)
		network.Drop()
	}
	lost := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Skip: 1, Times: 2}, testutil.DropAfter())
	defer network.Control(lost.Control)()
	found, err := inside(s).ReadAll(t.Context(), reads...)
	checkLibrary(t, reads, found, err)
	if lost.Count() != 2 {
		t.Errorf("%d answers of multiRead were lost", lost.Count())
	}
}
