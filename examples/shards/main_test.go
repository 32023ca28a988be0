package main

import (
	"io"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The command as a user runs it.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `shards of each member: map[a:4 b:4 c:4]
shards of each member: map[b:6 c:6]
`
	if out.String() != want {
		t.Errorf("it printed\n%s", out.String())
	}
	if left := ens.Children(basePath + "/members"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// In virtual time: a member that is killed, stopped past its deadline or cut
// off, the one that leads as well, costs its shards two session timeouts at
// most, and the others nothing. A token that goes back comes from one that was
// stopped alone, and the store refuses it.
func TestMembersFail(t *testing.T) {
	log.SetOutput(io.Discard)
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))
		w := newWorld(t, ens, 10*time.Second)
		w.exact = true
		w.scenario()
		t.Log(len(w.entries()), w.refused())
	})
}

// The same on real servers. It needs ZKR_REAL=1 and Apache ZooKeeper.
func TestOnRealServers(t *testing.T) {
	newWorld(t, apache.Start(t, 3), 4*time.Second).scenario()
}
