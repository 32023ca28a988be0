package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// A transfer locks two accounts. Transfers in opposite directions do not
// deadlock.
func ExampleAll() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	account := func(name string) recipes.Acquirer {
		m, err := locks.NewMutex(client, "/accounts/"+name)
		if err != nil {
			log.Fatal(err)
		}
		return m
	}
	both, err := locks.All(account("wendy"), account("alice"))
	if err != nil {
		log.Fatal(err)
	}
	err = recipes.Do(ctx, both, func(ctx context.Context, l *recipes.Lease) error {
		for _, part := range l.Parts() {
			fmt.Println(part.Path()[:len("/accounts/wendy")], part.Held())
		}
		_, err := account("alice").TryAcquire(context.Background()) // in another transfer
		fmt.Println("alice is busy:", errors.Is(err, recipes.ErrBusy))
		return nil
	})
	fmt.Println("error:", err)

	_, err = locks.All(account("alice"), account("alice"))
	fmt.Println(err)
	// Output:
	// /accounts/alice true
	// /accounts/wendy true
	// alice is busy: true
	// error: <nil>
	// locks: all: /accounts/alice: more than once
}

// Keyed has a lock for each key, which exists only while it is used.
func ExampleKeyed() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	orders, err := locks.NewKeyed(client, "/orders")
	if err != nil {
		log.Fatal(err)
	}
	ship := func(ctx context.Context, order string) error {
		return recipes.Do(ctx, orders.Key(order), func(ctx context.Context, l *recipes.Lease) error {
			fmt.Printf("shipping %q\n", order)
			return nil
		})
	}
	for _, order := range []string{"7", "EU/2024/8"} {
		if err := ship(ctx, order); err != nil {
			log.Fatal(err)
		}
	}
	lease, err := orders.Key("9").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	keys, err := orders.Keys(ctx)
	fmt.Printf("%q %v\n", keys, err)

	// When the service stops: Close releases all leases, and Acquire fails from
	// then on.
	fmt.Println("closed:", orders.Close(ctx))
	fmt.Println("held:", lease.Held())
	fmt.Println(ship(ctx, "10"))
	// Output:
	// shipping "7"
	// shipping "EU/2024/8"
	// ["7" "9" "EU/2024/8"] <nil>
	// closed: <nil>
	// held: false
	// locks: acquire /orders/10: keyed locks closed
}
