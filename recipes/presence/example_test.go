package presence_test

import (
	"context"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A service announces itself, and takes its name back at its end.
func Example() {
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

	node, err := presence.Announce(ctx, client, "/services/billing/10.0.0.7", []byte("starting"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(node.Status().State, node.Path())
	if err := node.Set(ctx, []byte("ready")); err != nil {
		log.Fatal(err)
	}
	data, _, _ := client.Get(ctx, node.Path())
	fmt.Println(string(data))
	fmt.Println(node.Close(ctx), node.Status().State)
	// Output:
	// STANDING /services/billing/10.0.0.7
	// ready
	// <nil> CLOSED
}
