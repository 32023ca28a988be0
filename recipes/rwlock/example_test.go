package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
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

// Many readers hold at once, and one writer holds alone.
func Example() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	rw, err := rwlock.New(client, "/app/config")
	if err != nil {
		log.Fatal(err)
	}
	err = recipes.Do(ctx, rw.Reader(), func(context.Context, *recipes.Lease) error {
		// Another reader, with an unrelated context, is granted too.
		other, err := rw.Reader().TryAcquire(ctx)
		if err != nil {
			return err
		}
		fmt.Println("two readers:", other.Held())
		defer func() { _ = other.Release(ctx) }()

		_, err = rw.Writer().TryAcquire(ctx)
		fmt.Println("busy for a writer:", errors.Is(err, recipes.ErrBusy))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// two readers: true
	// busy for a writer: true
	// error: <nil>
}

// A writer that goes on to read downgrades its lease: no other writer is
// granted in between. Other readers are granted when the write lease is
// released.
func ExampleRWLock_Reader_downgrade() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	rw, err := rwlock.New(client, "/app/config")
	if err != nil {
		log.Fatal(err)
	}
	write, err := rw.Writer().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	read, err := rw.Reader().Acquire(write.Context())
	if err != nil {
		log.Fatal(err)
	}
	if err := write.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = rw.Writer().Acquire(read.Context())
	fmt.Println("upgrade refused:", errors.Is(err, rwlock.ErrUpgrade))
	fmt.Println("same token as the write:", read.Token() == write.Token())
	fmt.Println("error:", read.Release(ctx))
	// Output:
	// upgrade refused: true
	// same token as the write: true
	// error: <nil>
}

// Participants lists the holders and the waiters.
func ExampleRWLock_Participants() {
	client, stop := connect()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	rw, err := rwlock.New(client, "/app/config", recipes.WithData([]byte("host 7")))
	if err != nil {
		log.Fatal(err)
	}
	read, err := rw.Reader().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	waited := make(chan error)
	go func() {
		_, err := rw.Writer().Acquire(ctx)
		waited <- err
	}()
	for {
		all, err := rw.Participants(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if len(all) == 2 {
			for _, p := range all {
				fmt.Printf("%s, %s, holds: %v\n", p.Data, p.Mode, p.Holder)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	fmt.Println("the writer gave up:", errors.Is(<-waited, context.Canceled))
	fmt.Println("error:", read.Release(context.Background()))
	// Output:
	// host 7, shared, holds: true
	// host 7, exclusive, holds: false
	// the writer gave up: true
	// error: <nil>
}
