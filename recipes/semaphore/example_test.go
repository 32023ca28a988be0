package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
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

// At most two goroutines of all processes work at the same time.
func Example() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	workers, err := semaphore.New(client, "/app/workers", 2)
	if err != nil {
		log.Fatal(err)
	}
	err = recipes.Do(ctx, workers, func(ctx context.Context, l *recipes.Lease) error {
		left, err := workers.Available(ctx)
		fmt.Println("left:", left)
		return err
	})
	fmt.Println("error:", err)
	// Output:
	// left: 1
	// error: <nil>
}

// Several permits are acquired at once, all or none.
func ExampleSemaphore_Permits() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	memory, err := semaphore.New(client, "/app/memory", 8, recipes.WithData([]byte("host 7")))
	if err != nil {
		log.Fatal(err)
	}
	most, err := memory.Permits(6).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = memory.Permits(3).TryAcquire(ctx)
	fmt.Println("three more:", errors.Is(err, recipes.ErrBusy))
	two, err := memory.Permits(2).TryAcquire(ctx)
	fmt.Println("two more:", err)
	_, err = memory.Permits(9).Acquire(ctx)
	fmt.Println(err)
	fmt.Println("released:", most.Release(ctx), two.Release(ctx))
	// Output:
	// three more: true
	// two more: <nil>
	// semaphore: acquire /app/memory: limit exceeded, or different from the recorded limit: 9 permits of 8
	// released: <nil> <nil>
}

// SetMax changes the limit for all processes while the semaphore is in use.
func ExampleSemaphore_SetMax() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	workers, err := semaphore.New(client, "/app/workers", 1)
	if err != nil {
		log.Fatal(err)
	}
	first, err := workers.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := workers.SetMax(ctx, 2); err != nil {
		log.Fatal(err)
	}
	second, err := workers.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := workers.SetMax(ctx, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println("nothing is revoked:", first.Held(), second.Held())
	fmt.Println("released:", first.Release(ctx), second.Release(ctx))
	// Output:
	// nothing is revoked: true true
	// released: <nil> <nil>
}
