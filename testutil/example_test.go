package testutil_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// t stands for the test that an example is part of.
var t *testing.T

// The session that holds a lock expires, and the holder learns that the lock is
// lost.
func Example() {
	ctx := context.Background()
	ens, err := testutil.New(testutil.WithMembers(3))
	check(err)
	defer ens.Close()
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
	check(err)
	defer client.Close()

	mutex, err := locks.NewMutex(client, "/locks/report")
	check(err)
	lease, err := mutex.Acquire(ctx)
	check(err)
	fmt.Println("held:", lease.Held(), "znodes:", len(ens.Children("/locks/report")))

	session, err := client.Session()
	check(err)
	check(ens.ExpireSession(session.ID()))
	<-lease.Lost()
	fmt.Println("held:", lease.Held(), "session lost:", errors.Is(lease.Err(), framework.ErrSessionLost))
	// Output:
	// held: true znodes: 1
	// held: false session lost: true
}

// A test in virtual time. The minute of sleep takes no time, and the session
// expires in it, since its client is cut off from all members.
func ExampleInMemory() {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3))
		net := ens.ClientNet("worker")
		client, err := framework.New(ens.Servers(), framework.WithDialer(net.Dial))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.Create(t.Context(), "/worker", nil, zk.FlagEphemeral); err != nil {
			t.Fatal(err)
		}
		net.Cut()
		time.Sleep(time.Minute)
		if ens.Exists("/worker") {
			t.Error("the znode has outlived its session")
		}
	})
}

// A member crashes, and the client goes on at another one.
func ExampleEmbedded_Stop() {
	ctx := context.Background()
	ens, err := testutil.New(testutil.WithMembers(3))
	check(err)
	defer ens.Close()
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
	check(err)
	defer client.Close()
	_, err = client.Create(ctx, "/before", nil, 0)
	check(err)

	check(ens.Stop(ens.Leader()))
	check(client.MakePersistentPath(ctx, "/after")) // tried again; a Create would not be
	fmt.Print(ens.Tree())
	// Output:
	// /after
	// /before
}

// A member is replaced by one at another address.
func ExampleEmbedded_AddMember() {
	ctx := context.Background()
	ens, err := testutil.New(testutil.WithMembers(3), testutil.WithReconfig(), testutil.InMemory())
	check(err)
	defer ens.Close()

	added, err := ens.AddMember(ctx)
	check(err)
	check(ens.RemoveMember(ctx, 0)) // it goes on as a follower without a vote
	check(ens.Stop(0))
	config, _ := ens.Data("/zookeeper/config")
	fmt.Printf("member %d of %s\n%s\n", added, ens.Servers(), config)
	// Output:
	// member 3 of member0:2181,member1:2181,member2:2181,member3:2181
	// server.2=member1:2888:3888:participant;member1:2181
	// server.3=member2:2888:3888:participant;member2:2181
	// server.4=member3:2888:3888:participant;member3:2181
	// version=100000002
}

// The network of one client loses the answer to its second create. The create
// was executed, and the client cannot know.
func ExampleNewFault() {
	ctx := context.Background()
	ens, err := testutil.New()
	check(err)
	defer ens.Close()
	net := ens.ClientNet("worker")
	client, err := framework.New(ens.Servers(), framework.WithDialer(net.Dial))
	check(err)
	defer client.Close()

	lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Skip: 1}, testutil.DropAfter())
	defer net.Control(lost.Control)()
	for _, path := range []string{"/first", "/second"} {
		_, err := client.Create(ctx, path, nil, 0)
		fmt.Println(path, "maybe applied:", framework.MaybeApplied(err))
	}
	fmt.Print(ens.Tree())
	// Output:
	// /first maybe applied: false
	// /second maybe applied: true
	// /first
	// /second
}

// A client is cut off from all servers, and its lease ends in time although no
// server can tell it.
func ExampleClientNet() {
	ctx := context.Background()
	ens, err := testutil.New(testutil.WithTick(100 * time.Millisecond))
	check(err)
	defer ens.Close()
	net := ens.ClientNet("worker")
	client, err := framework.New(ens.Servers(), framework.WithDialer(net.Dial), framework.WithSessionTimeout(time.Second))
	check(err)
	defer client.Close()
	mutex, err := locks.NewMutex(client, "/locks/report")
	check(err)
	lease, err := mutex.Acquire(ctx)
	check(err)

	net.Cut()
	<-lease.Lost()
	fmt.Println("held:", lease.Held())
	net.Heal()
	_, err = mutex.Acquire(ctx) // in a new session
	fmt.Println("acquired again:", err == nil)
	// Output:
	// held: false
	// acquired again: true
}

// A function decides about every request of the client. This one refuses to
// create /config.
func ExampleClientNet_Control() {
	ctx := context.Background()
	ens, err := testutil.New()
	check(err)
	defer ens.Close()
	net := ens.ClientNet("worker")
	client, err := framework.New(ens.Servers(), framework.WithDialer(net.Dial))
	check(err)
	defer client.Close()

	stop := net.Control(func(r testutil.Request) testutil.Action {
		if r.Op == testutil.OpCreate && r.Path == "/config" {
			return testutil.Fail(testutil.CodeNoAuth)
		}
		return testutil.Pass()
	})
	_, err = client.Create(ctx, "/config", nil, 0)
	fmt.Println(errors.Is(err, zk.ErrNoAuth))
	stop()
	_, err = client.Create(ctx, "/config", nil, 0)
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
