package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// connect returns a client of an in-process ensemble. A service would only call
// framework.New("zk1:2181,zk2:2181,zk3:2181").
func connect() (client *framework.Client, stop func()) {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	client, err = framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		_ = client.Close()
		_ = ens.Close()
	}
}

// Do calls a function under the lock, with a context that ends when the lock is
// lost.
func Example() {
	client, stop := connect()
	defer stop()

	mutex, err := locks.NewMutex(client, "/app/lock")
	if err != nil {
		log.Fatal(err)
	}
	err = recipes.Do(context.Background(), mutex, func(ctx context.Context, l *recipes.Lease) error {
		fmt.Println("held:", l.Held())
		return ctx.Err()
	})
	fmt.Println("error:", err)
	// Output:
	// held: true
	// error: <nil>
}

// A timeout limits the wait, not the work.
func ExampleMutex_Acquire() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	mutex, err := locks.NewMutex(client, "/app/lock", recipes.WithData([]byte("host 7")))
	if err != nil {
		log.Fatal(err)
	}
	wait, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("somebody else is at it"))
	lease, err := mutex.Acquire(wait)
	cancel()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the work's context:", lease.Context().Err())

	// Acquire with the lease's context re-enters the lock. Without it, it
	// waits.
	inner, err := mutex.Acquire(lease.Context())
	if err != nil {
		log.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = mutex.Acquire(short)
	fmt.Println(err)

	fmt.Println("inner:", inner.Release(ctx))
	fmt.Println("outer:", lease.Release(ctx)) // nil: it was held until now
	// Output:
	// the work's context: <nil>
	// locks: acquire /app/lock: waiting in-process for another goroutine that holds the lock: context deadline exceeded
	// inner: <nil>
	// outer: <nil>
}

func ExampleMutex_TryAcquire() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	mutex, err := locks.NewMutex(client, "/app/lock")
	if err != nil {
		log.Fatal(err)
	}
	lease, err := mutex.TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = mutex.TryAcquire(ctx)
	fmt.Println("busy:", errors.Is(err, recipes.ErrBusy))
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: busy: true
}

// WithAsyncRelease saves a round trip where a goroutine takes one lock after
// another. What the lock protects is written by Lease.Multi, which is applied
// only while the lock is held: the release no longer proves that.
func Example_asyncRelease() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	accounts, err := locks.NewKeyed(client, "/app/accounts", recipes.WithAsyncRelease())
	if err != nil {
		log.Fatal(err)
	}
	for _, account := range []string{"7", "8", "9"} {
		balance, err := client.Create(ctx, "/balance-"+account, []byte("0"), zk.FlagPersistent)
		if err != nil {
			log.Fatal(err)
		}
		err = recipes.Do(ctx, accounts.Key(account), func(ctx context.Context, l *recipes.Lease) error {
			_, err := l.Multi(ctx, &zk.SetDataRequest{Path: balance, Data: []byte("100"), Version: -1})
			return err
		})
		fmt.Println(account, err)
	}
	// Close waits until no znode is left.
	fmt.Println(accounts.Close(ctx))
	// Output:
	// 7 <nil>
	// 8 <nil>
	// 9 <nil>
	// <nil>
}

// Participants lists the holder and the waiters. Revoke asks a holder to
// release.
func ExampleMutex_Revoke() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	mutex, err := locks.NewMutex(client, "/app/lock", recipes.WithData([]byte("host 7")))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := mutex.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	participants, err := mutex.Participants(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range participants {
		fmt.Printf("%s holds: %v\n", p.Data, p.Holder)
		if err := mutex.Revoke(ctx, p); err != nil {
			log.Fatal(err)
		}
	}
	<-lease.Revoked()
	fmt.Println("asked to release; held:", lease.Held())
	fmt.Println("released:", lease.Release(ctx))
	// Output:
	// host 7 holds: true
	// asked to release; held: true
	// released: <nil>
}

// Lease.Multi applies a write only while the lock is held.
func ExampleMutex_guarded() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	if _, err := client.Create(ctx, "/config", []byte("old"), zk.FlagPersistent); err != nil {
		log.Fatal(err)
	}
	mutex, err := locks.NewMutex(client, "/app/lock")
	if err != nil {
		log.Fatal(err)
	}
	lease, err := mutex.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	write := func(data string) error {
		_, err := lease.Multi(ctx, &zk.SetDataRequest{Path: "/config", Data: []byte(data), Version: -1})
		return err
	}
	fmt.Println("while held:", write("new"))
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	err = write("stale")
	fmt.Println("afterwards:", errors.Is(err, recipes.ErrNotHeld))
	fmt.Println("token sorts as text:", strings.Compare(lease.Token().String(), recipes.Token{}.String()) > 0)
	// Output:
	// while held: <nil>
	// afterwards: true
	// token sorts as text: true
}
