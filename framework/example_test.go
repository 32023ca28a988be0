package framework_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// dial returns a client of an ensemble inside this process. A service has an
// ensemble already: it calls framework.New("zk1:2181,zk2:2181,zk3:2181") alone.
func dial(opts ...framework.Option) (client *framework.Client, ens *testutil.Embedded, stop func()) {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	client, err = framework.New(ens.Servers(), append(opts, framework.WithDialer(ens.Dial))...)
	if err != nil {
		log.Fatal(err)
	}
	return client, ens, func() {
		_ = client.Close()
		_ = ens.Close()
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Connect, write a znode, read it.
func Example() {
	client, _, stop := dial(framework.WithSessionTimeout(10 * time.Second))
	defer stop()
	ctx := context.Background()

	check(client.MakePersistentPath(ctx, "/app/config"))
	_, err := client.Create(ctx, "/app/config/limit", []byte("100"), zk.FlagPersistent)
	check(err)
	data, stat, err := client.Get(ctx, "/app/config/limit")
	check(err)
	fmt.Printf("limit %s, version %d\n", data, stat.Version)

	_, err = client.Set(ctx, "/app/config/limit", []byte("200"), stat.Version+1)
	fmt.Println(err)
	// Output:
	// limit 100, version 0
	// set /app/config/limit: zk: version conflict
}

// A listener hears of each change of the state, in order. Here the connection
// breaks and the session resumes on another one.
func ExampleClient_Listen() {
	client, ens, stop := dial()
	defer stop()
	ctx := context.Background()
	session, err := client.AwaitSession(ctx)
	check(err)

	changes := make(chan framework.StateChange, 10)
	stopListening := client.Listen(func(c framework.StateChange) { changes <- c })
	defer stopListening()
	fmt.Println((<-changes).To) // the current state comes first
	check(ens.DropConnections(session.ID()))
	fmt.Println((<-changes).To)
	resumed := <-changes
	fmt.Println(resumed.To, "reconnected:", resumed.Reconnected())
	check(client.Close())
	fmt.Println((<-changes).To)
	// Output:
	// CONNECTED
	// SUSPENDED
	// CONNECTED reconnected: true
	// CLOSED
}

// The retry policy bounds an operation while no server can be reached. The
// context bounds it, too.
func ExampleWithRetry() {
	client, err := framework.New("zk1.example:2181",
		framework.WithRetry(retry.NTimes(2, 500*time.Millisecond)),
		framework.WithDialer(func(string, string, time.Duration) (net.Conn, error) { return nil, errors.New("refused") }))
	check(err)
	defer client.Close()

	_, _, err = client.Get(context.Background(), "/app/config")
	fmt.Println(errors.Is(err, zk.ErrNoServer))
	fmt.Println(err)
	// Output:
	// true
	// get /app/config: zk: could not connect to a server (connect to zk1.example:2181: refused)
}

// A write whose answer was lost may have been executed. Operations that can be
// repeated are retried; for the others MaybeApplied says that the outcome is
// unknown.
func ExampleMaybeApplied() {
	client, ens, stop := dial()
	defer stop()
	ctx := context.Background()
	check(client.WaitConnected(ctx))

	lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Times: 1}, testutil.DropAfter())
	defer ens.Control(lost.Control)()
	_, err := client.Create(ctx, "/job-", nil, zk.FlagSequence)
	fmt.Println(err != nil, framework.MaybeApplied(err))
	fmt.Println(ens.Children("/")) // another try would have made a second one
	// Output:
	// true true
	// [job-0000000000 zookeeper]
}

// WatchData follows a znode across changes, reconnects and sessions, from
// before it exists.
func ExampleClient_WatchData() {
	client, _, stop := dial()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // ends the watch and closes the channel

	values, err := client.WatchData(ctx, "/limit")
	check(err)
	fmt.Println("exists:", (<-values).Exists)
	_, err = client.Create(ctx, "/limit", []byte("100"), zk.FlagPersistent)
	check(err)
	fmt.Printf("%s\n", (<-values).Data)
	_, err = client.Set(ctx, "/limit", []byte("200"), -1)
	check(err)
	fmt.Printf("%s\n", (<-values).Data)
	// Output:
	// exists: false
	// 100
	// 200
}

// A namespace shares the connection of its client and has its own paths.
func ExampleClient_Namespace() {
	client, ens, stop := dial()
	defer stop()
	ctx := context.Background()

	app, err := client.Namespace("apps/shop")
	check(err)
	check(app.MakePersistentPath(ctx, "/config"))
	fmt.Println(app.Resolve("/config"), ens.Exists("/apps/shop/config"))
	// Output: /apps/shop/config true
}

// A Multi is executed as a whole or not at all. Here a check makes the write
// depend on another znode.
func ExampleClient_Multi() {
	client, _, stop := dial()
	defer stop()
	ctx := context.Background()

	_, err := client.Multi(ctx,
		&zk.CreateRequest{Path: "/accounts"},
		&zk.CreateRequest{Path: "/accounts/a", Data: []byte("10")})
	check(err)
	responses, err := client.Multi(ctx,
		&zk.CheckVersionRequest{Path: "/accounts/a", Version: 0},
		&zk.SetDataRequest{Path: "/accounts/a", Data: []byte("7"), Version: -1},
		&zk.DeleteRequest{Path: "/accounts/b", Version: -1})
	fmt.Println(err)
	for i, r := range responses {
		fmt.Println(i, r.Error)
	}
	data, _, err := client.Get(ctx, "/accounts/a")
	check(err)
	fmt.Printf("%s\n", data)
	// Output:
	// multi: delete /accounts/b: zk: node does not exist
	// 0 <nil>
	// 1 <nil>
	// 2 zk: node does not exist
	// 10
}

// DeleteCreated deletes the znode that this process has created, and spares one
// that another process has created at the same path since.
func ExampleClient_DeleteCreated() {
	client, _, stop := dial()
	defer stop()
	ctx := context.Background()

	_, err := client.Create(ctx, "/owner", []byte("a"), zk.FlagEphemeral)
	check(err)
	_, mine, err := client.Exists(ctx, "/owner")
	check(err)
	check(client.Delete(ctx, "/owner", -1))
	_, err = client.Create(ctx, "/owner", []byte("b"), zk.FlagEphemeral)
	check(err)

	fmt.Println(client.DeleteCreated(ctx, "/owner", mine))
	// Output: delete /owner: zk: node does not exist
}

// A session is a value. What is done in it is never done in the next one.
func ExampleSession() {
	client, ens, stop := dial()
	defer stop()
	ctx := context.Background()

	session, err := client.AwaitSession(ctx)
	check(err)
	_, err = session.Create(ctx, "/worker", nil, zk.FlagEphemeral)
	check(err)
	check(ens.ExpireSession(session.ID())) // as after a long pause of this process
	<-session.Done()
	_, err = session.Create(ctx, "/worker", nil, zk.FlagEphemeral)
	fmt.Println(err)

	next, err := client.AwaitSession(ctx)
	check(err)
	_, err = next.Create(ctx, "/worker", nil, zk.FlagEphemeral)
	fmt.Println(err, next.ID() != session.ID())
	// Output:
	// create /worker: session lost: expired by the ensemble
	// <nil> true
}

// A waiting line: each contender creates a protected, ephemeral, sequential
// znode and waits until the one ahead of it is gone.
//
// A protected create survives the loss of its answer, and leaves nothing behind
// when it fails. The directory is listed with it, in one round trip.
func ExampleSession_CreateProtected() {
	client, _, stop := dial()
	defer stop()
	ctx := context.Background()
	session, err := client.AwaitSession(ctx)
	check(err)
	check(session.MakeContainerPath(ctx, "/line"))

	enter := func(data string) framework.Created {
		made, err := session.CreateProtected(ctx, "/line", "n-", []byte(data), zk.FlagEphemeral|zk.FlagSequence)
		check(err)
		if made.Children == nil { // not shown by the list that was sent with the create
			made.Children, made.Stat, err = session.Children(ctx, "/line")
			check(err)
		}
		slices.SortFunc(made.Children, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
		return made
	}
	first, second := enter("a"), enter("b")
	ahead := "/line/" + second.Children[0]
	fmt.Println("the first is ahead:", ahead == first.Path)
	gone, err := session.Watch(ctx, ahead)
	check(err)
	session.Discard(first.Path)
	<-gone
	check(session.Prove(ctx)) // rely on nothing before this
	names, _, err := session.Children(ctx, "/line")
	check(err)
	fmt.Println("the second alone:", len(names) == 1 && "/line/"+names[0] == second.Path)
	// Output:
	// the first is ahead: true
	// the second alone: true
}

// Several znodes at once, together with a check of another znode: all or
// nothing.
func ExampleSession_CreateAllProtected() {
	client, ens, stop := dial()
	defer stop()
	ctx := context.Background()
	session, err := client.AwaitSession(ctx)
	check(err)
	check(session.MakeContainerPath(ctx, "/seats"))
	_, err = session.Create(ctx, "/ticket", nil, zk.FlagPersistent)
	check(err)

	batch := framework.ProtectedBatch{
		Before: []any{&zk.DeleteRequest{Path: "/ticket", Version: -1}}, // so it cannot be applied twice
		Dir:    "/seats",
		Name:   "seat-",
		N:      3,
		Flags:  zk.FlagEphemeral | zk.FlagSequence,
	}
	paths, _, err := session.CreateAllProtected(ctx, batch)
	fmt.Println(len(paths), len(ens.Children("/seats")), err)
	_, failed, err := session.CreateAllProtected(ctx, batch)
	fmt.Println("operation", failed, err)
	// Output:
	// 3 3 <nil>
	// operation 0 multi /seats: zk: node does not exist
}

// A znode is awaited, whether it exists or not.
func ExampleSession_WatchExists() {
	client, _, stop := dial()
	defer stop()
	ctx := context.Background()
	session, err := client.AwaitSession(ctx)
	check(err)

	created := make(chan error)
	go func() {
		_, err := client.Create(ctx, "/ready", nil, zk.FlagPersistent)
		created <- err
	}()
	for {
		exists, _, changed, err := session.WatchExists(ctx, "/ready")
		check(err)
		if exists {
			break
		}
		<-changed // also at a reconnect, and when the session is over
	}
	fmt.Println("ready", <-created)
	// Output: ready <nil>
}

// Hold says when an ephemeral znode may no longer be relied on, which is before
// the ensemble can have removed it.
func ExampleSession_Hold() {
	client, ens, stop := dial()
	defer stop()
	ctx := context.Background()
	session, err := client.AwaitSession(ctx)
	check(err)
	_, err = session.Create(ctx, "/leader", nil, zk.FlagEphemeral)
	check(err)

	lost := make(chan error, 1)
	release, err := session.Hold(func(why error) { lost <- why })
	check(err)
	defer release()
	check(ens.ExpireSession(session.ID()))
	fmt.Println(<-lost)
	// Output: session lost: expired by the ensemble
}

// Discard deletes in the background. Wait for it where the order matters.
func ExampleSession_Discard() {
	client, ens, stop := dial()
	defer stop()
	ctx := context.Background()
	session, err := client.AwaitSession(ctx)
	check(err)
	path, err := session.Create(ctx, "/worker", nil, zk.FlagEphemeral)
	check(err)

	<-session.Discard(path)
	fmt.Println("exists:", ens.Exists(path), "session:", session.Err())
	// Output: exists: false session: <nil>
}

// An observer counts what happens, for metrics.
// The servers stand in the DNS, as SRV records.
func ExampleWithServersFunc() {
	list := func(ctx context.Context) (string, error) {
		_, found, err := net.DefaultResolver.LookupSRV(ctx, "zookeeper", "tcp", "example.com")
		var servers []string
		for _, s := range found {
			servers = append(servers, net.JoinHostPort(s.Target, strconv.Itoa(int(s.Port))))
		}
		return strings.Join(servers, ","), err
	}
	client, err := framework.New("zk1.example.com:2181/app", framework.WithServersFunc(list))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleWithObserver() {
	creates := make(chan string, 10)
	client, _, stop := dial(framework.WithObserver(framework.Observer{
		RequestEnd: func(_ context.Context, r framework.Request, result framework.RequestResult) {
			if r.Op == "create" {
				creates <- result.Code
			}
		},
	}))
	defer stop()

	_, err := client.Create(context.Background(), "/a/b", nil, zk.FlagPersistent)
	fmt.Println(err)
	fmt.Println(<-creates)
	// Output:
	// create /a/b: zk: node does not exist
	// NONODE
}

// Log with log/slog. A line has its time, its level, the server and the session
// as well.
func ExampleWithSlog() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == "server" || a.Key == "session" {
			return slog.Attr{}
		}
		return a
	}})
	client, _, stop := dial(framework.WithSlog(slog.New(handler).With("app", "billing")))
	check(client.WaitConnected(context.Background()))
	stop()
	// Output:
	// msg="state changed" app=billing from=CONNECTING to=CONNECTED timeout=10s
	// msg="state changed" app=billing from=CONNECTED to=CLOSED timeout=10s
}

// Many znodes are read in one request, each with an error of its own.
func ExampleClient_ReadAll() {
	client, _, stop := dial()
	defer stop()
	ctx := context.Background()
	for _, path := range []string{"/config", "/config/host", "/config/port"} {
		_, err := client.Create(ctx, path, []byte("value of "+path), zk.FlagPersistent)
		check(err)
	}
	results, err := client.ReadAll(ctx,
		framework.Read{Path: "/config/host"},
		framework.Read{Path: "/config/user"},
		framework.Read{Path: "/config", Children: true})
	check(err)
	fmt.Println(string(results[0].Data))
	fmt.Println(results[1].Err)
	fmt.Println(len(results[2].Children), "children")
	// Output:
	// value of /config/host
	// get /config/user: zk: node does not exist
	// 2 children
}

// Another call with the same marker, from whatever process, pays nothing more.
func ExampleClient_UpdateOnce() {
	client, _, stop := dial()
	defer stop()
	ctx := context.Background()
	check(client.MakePersistentPath(ctx, "/paid"))
	_, err := client.Create(ctx, "/balance", []byte("100"), 0)
	check(err)

	for range 2 {
		paid, err := client.UpdateOnce(ctx, "/balance", "/paid/invoice-4711", func(old []byte, _ *zk.Stat) ([]byte, error) {
			balance, err := strconv.Atoi(string(old))
			return []byte(strconv.Itoa(balance - 30)), err
		})
		check(err)
		fmt.Println("repeated:", paid.Repeated)
	}
	balance, _, err := client.Get(ctx, "/balance")
	check(err)
	fmt.Printf("%s\n", balance)
	// Output:
	// repeated: false
	// repeated: true
	// 70
}
