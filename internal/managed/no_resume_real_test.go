package managed_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Real members that behave like ClickHouse Keeper: directories are made, a
// disconnect ends the session at once, and Close leaves nothing.
func TestNoSessionIsResumedOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	plain, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second))
	must(t, err)
	network := ens.ClientNet("imitated")
	network.Imitate(testutil.ClickHouseKeeper)
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithDialer(network.Dial))
	must(t, err)
	began := time.Now()
	must(t, c.MakeContainerPath(within(t, time.Minute), "/dirs/a"))
	t.Logf("the first directory took %v", time.Since(began))
	s := session(t, c)
	_, err = s.Create(within(t, time.Minute), "/dirs/a/mine", nil, zk.FlagEphemeral)
	must(t, err)
	network.Drop()
	<-s.Done()
	if !errors.Is(s.Err(), framework.ErrSessionLost) || errors.Is(s.Err(), framework.ErrUnproven) {
		t.Errorf("the session ended with %v", s.Err())
	}
	_, err = c.Create(within(t, time.Minute), "/dirs/a/again", nil, zk.FlagEphemeral)
	must(t, err)
	must(t, c.Close())
	if found, _, err := plain.Exists(within(t, time.Minute), "/dirs/a/again"); err != nil || found {
		judge.Errorf(t, "after Close it stands: %v, %v", found, err)
	}
	must(t, plain.Close())
}
