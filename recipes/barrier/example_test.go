package barrier_test

import (
	"context"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Three workers begin together, and none goes on before all have ended.
func ExampleDouble() {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	d, err := barrier.NewDouble(client, "/jobs/nightly", 3)
	if err != nil {
		log.Fatal(err)
	}
	begun, ended := make(chan error), make(chan error)
	for range 3 {
		go func() {
			inside, err := d.Enter(ctx)
			if begun <- err; err == nil {
				ended <- inside.Leave(ctx)
			}
		}()
	}
	fmt.Println(<-begun, <-begun, <-begun)
	fmt.Println(<-ended, <-ended, <-ended)
	// Output:
	// <nil> <nil> <nil>
	// <nil> <nil> <nil>
}

// What an operator has stopped waits until it is released.
func ExampleBarrier() {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	b, err := barrier.New(client, "/maintenance")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Set(ctx))
	passed := make(chan error)
	go func() { passed <- b.Wait(ctx) }()
	fmt.Println(b.Remove(ctx))
	fmt.Println(<-passed)
	// Output:
	// <nil>
	// <nil>
	// <nil>
}
