package presence_test

import (
	"context"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
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

// A loop has the members of a group when they are known, and then the latest
// ones at each change.
func ExampleRoster_Changes() {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	defer ens.Close()
	client, err := framework.New(ens.Servers())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	group, err := presence.NewGroup(client, "/workers")
	if err != nil {
		log.Fatal(err)
	}
	roster := group.Follow()
	defer roster.Close()
	for members, status := range roster.Changes(ctx) {
		if status.State != cache.Synced {
			continue // they may be out of date, since status.Since
		}
		for _, m := range members {
			fmt.Println(m.ID)
		}
		if len(members) > 0 {
			break
		}
		node, err := group.Join(ctx, "10.0.0.7", nil)
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close(ctx)
	}
	// Output:
	// 10.0.0.7
}
