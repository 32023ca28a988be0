package testutil_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// What an imitated server shows of a znode's children.
func TestImitatedStats(t *testing.T) {
	ens := testutil.Start(t)
	network := ens.ClientNet("imitated")
	network.Imitate(testutil.ClickHouseKeeper)
	conn := wireClient(t, ens.Servers(), network.Dial, 10*time.Second)
	create := func(path string) {
		t.Helper()
		_, err := conn.Create(path, nil, 0, anyACL)
		must(t, err)
	}
	create("/dir")
	create("/dir/a")
	create("/dir/b")
	show := func() *zk.Stat {
		t.Helper()
		_, byList, err := conn.Children("/dir")
		must(t, err)
		_, byGet, err := conn.Get("/dir")
		must(t, err)
		if *byList != *byGet {
			t.Errorf("%+v, then %+v", byList, byGet)
		}
		return byGet
	}
	first := show()
	must(t, conn.Delete("/dir/a", -1))
	if now := show(); now.Pzxid != first.Pzxid || now.NumChildren != 1 || now.Cversion != first.Cversion+1 {
		t.Errorf("after a delete %+v, before it %+v", now, first)
	}
	_, err := conn.Set("/dir/b", []byte("x"), -1)
	must(t, err)
	if now := show(); now.Pzxid != first.Pzxid || now.Cversion != first.Cversion+2 {
		t.Errorf("after a write %+v, before it %+v", now, first)
	}
	create("/dir/c")
	if now := show(); now.Pzxid <= first.Pzxid || now.Cversion != first.Cversion+3 {
		t.Errorf("after a create %+v, before it %+v", now, first)
	}
}

// To the wire client, an imitated server resumes no session, ends the
// connection behind a close and at an operation that it does not know, and
// otherwise serves.
func TestImitate(t *testing.T) {
	ens := testutil.Start(t)
	network := ens.ClientNet("imitated")
	network.Imitate(testutil.ClickHouseKeeper)
	conn, events, err := zk.Connect([]string{ens.Servers()}, 4*time.Second, zk.WithDialer(network.Dial), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	await := func(state zk.State) {
		t.Helper()
		limit := time.After(20 * time.Second)
		for {
			select {
			case e := <-events:
				if e.State == state {
					return
				}
			case <-limit:
				t.Fatalf("never %v", state)
			}
		}
	}
	await(zk.StateHasSession)
	first := conn.SessionID()
	if _, err := conn.Create("/a", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.CreateContainer("/b", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("createContainer: %v", err)
	}
	await(zk.StateHasSession)
	if conn.SessionID() == first {
		t.Error("the session was resumed")
	}
	if found, _, err := conn.Exists("/a"); err != nil || !found {
		t.Errorf("the znode of the first session: %v, %v", found, err)
	}
	if found, _, err := conn.Exists("/b"); err != nil || found {
		t.Errorf("the container: %v, %v", found, err)
	}
	conn.Close()
	for len(ens.Sessions()) > 1 { // the first one stays until it expires
		time.Sleep(5 * time.Millisecond)
	}
}
