package testutil_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// An ensemble outside of a test: a lost reply, and what it leaves behind.
func Example() {
	ens, err := testutil.New(testutil.WithMembers(3))
	if err != nil {
		panic(err)
	}
	defer ens.Close()
	conn, events, err := zk.Connect(strings.Split(ens.Servers(), ","), 10*time.Second, zk.WithDialer(ens.Dial), zk.WithLogger(quiet{}))
	if err != nil {
		panic(err)
	}
	defer func() {
		conn.Close()
		for range events {
		}
	}()

	stop := ens.Control(func(r testutil.Request) testutil.Action {
		if r.Op == testutil.OpCreate && r.Path == "/job" {
			return testutil.DropAfter() // executed, and not answered
		}
		return testutil.Pass()
	})
	_, err = conn.Create("/job", []byte("mine"), 0, zk.WorldACL(zk.PermAll))
	stop()
	fmt.Println(err)
	fmt.Print(ens.Tree())
	// Output:
	// zk: connection closed
	// /job "mine"
}

// The network of one client loses the second answer that it waits for; any server would do, and nobody else notices.
func ExampleNewFault() {
	ens, err := testutil.New()
	if err != nil {
		panic(err)
	}
	defer ens.Close()
	net := ens.ClientNet("worker")
	conn, events, err := zk.Connect(strings.Split(ens.Servers(), ","), 10*time.Second, zk.WithDialer(net.Dial), zk.WithLogger(quiet{}))
	if err != nil {
		panic(err)
	}
	defer func() {
		conn.Close()
		for range events {
		}
	}()

	lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Skip: 1}, testutil.DropAfter())
	defer net.Control(lost.Control)()
	for _, path := range []string{"/first", "/second"} {
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		fmt.Println(path, err)
	}
	fmt.Print(ens.Tree())
	// Output:
	// /first <nil>
	// /second zk: connection closed
	// /first
	// /second
}
