package counter_test

import (
	"context"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func Example() {
	ens, err := testutil.New(testutil.InMemory()) // in production: an ensemble
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
	orders, err := counter.New(client, "/ids/order")
	if err != nil {
		log.Fatal(err)
	}
	after, err := orders.Add(ctx, 1)
	fmt.Println(after, err)
	first, err := orders.Reserve(ctx, 1000) // ids for this process alone
	fmt.Println(first, first+999, err)
	for range 2 { // the second call does not know of the first, and neither would one after a crash
		r, err := orders.AddOnce(ctx, "invoice-4711", 5)
		fmt.Println(r.Value, r.Repeated, err)
	}
	// Output:
	// 1 <nil>
	// 2 1001 <nil>
	// 1006 false <nil>
	// 1006 true <nil>
}
