package managed_test

import (
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The real server answers what is sent right behind the sync.
func TestASyncBehindAnEventOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	network := ens.ClientNet("hears")
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(20*time.Second), framework.WithDialer(network.Dial))
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	other, err := framework.New(ens.Servers(), framework.WithSessionTimeout(20*time.Second))
	must(t, err)
	t.Cleanup(func() { must(t, other.Close()) })
	must(t, c.WaitConnected(t.Context()))
	_, err = other.Create(t.Context(), "/a", nil, 0)
	must(t, err)
	for round := range 20 {
		changed, err := session(t, c).Watch(t.Context(), "/a")
		must(t, err)
		_, err = other.Set(t.Context(), "/a", []byte{byte(round)}, -1)
		must(t, err)
		<-changed
		recorded := requestsOf(network, testutil.Pass())
		network.Drop()
		data, _, err := c.Get(t.Context(), "/a")
		must(t, err)
		requests := recorded()
		if !slices.Equal(data, []byte{byte(round)}) || !slices.Equal(requests, []testutil.Op{testutil.OpSync, testutil.OpGetData}) {
			t.Errorf("read %v by %v", data, requests)
		}
	}
}
