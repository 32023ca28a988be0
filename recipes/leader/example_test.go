package leader_test

import (
	"context"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Run campaigns, leads, and campaigns again until its context ends or the
// function returns leader.ErrStop.
func ExampleElection_Run() {
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

	election, err := leader.New(client, "/app/leader", leader.WithID("host-1"))
	if err != nil {
		log.Fatal(err)
	}
	terms := 0
	err = election.Run(context.Background(), func(ctx context.Context, term *recipes.Lease) error {
		now, err := election.Leader(ctx)
		if err != nil {
			return err
		}
		terms++
		fmt.Printf("term %d: %s leads\n", terms, now.Data)
		if terms == 2 {
			return leader.ErrStop
		}
		return nil // campaign again; there is no other candidate
	})
	fmt.Println("stopped:", err)
	// Output:
	// term 1: host-1 leads
	// term 2: host-1 leads
	// stopped: <nil>
}

// Observe reports each leader, without being a candidate.
func ExampleElection_Observe() {
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

	candidate, err := leader.New(client, "/app/leader", leader.WithID("host-1"))
	if err != nil {
		log.Fatal(err)
	}
	term, err := candidate.Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	leaders := candidate.Observe(ctx)
	fmt.Printf("leader: %q\n", (<-leaders).Data)
	if err := term.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("leader: %q\n", (<-leaders).Data)
	// Output:
	// leader: "host-1"
	// leader: ""
}
