package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Details is what an instance of the service says about itself.
type Details struct {
	Version string `json:"version"`
}

// An instance is registered, found, and withdrawn.
func Example() {
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

	d, err := discovery.New(client, "/services", discovery.JSON[Details]("com.acme.Details"))
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	reg, err := d.Register(ctx, discovery.Instance[Details]{
		Name: "billing", ID: "10.0.0.7:8080", Address: "10.0.0.7", Port: 8080, Payload: Details{Version: "2.1"},
	})
	if err != nil {
		log.Fatal(err)
	}

	billing, err := d.Service("billing", discovery.Random)
	if err != nil {
		log.Fatal(err)
	}
	one, err := billing.Pick(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(one.Address, one.Port, one.Payload.Version)
	if err := reg.Close(ctx); err != nil {
		log.Fatal(err)
	}
	all, err := billing.Fresh(ctx)
	fmt.Println(len(all), err)
	_, err = billing.Pick(ctx)
	fmt.Println(errors.Is(err, discovery.ErrNoInstance))
	// Output:
	// 10.0.0.7 8080 2.1
	// 0 <nil>
	// true
}

// A loop has the instances of a service when they are known, and then the
// latest ones at each change.
func ExampleService_Changes() {
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

	d, err := discovery.New(client, "/services", discovery.JSON[Details]("com.acme.Details"))
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	billing, err := d.Service("billing")
	if err != nil {
		log.Fatal(err)
	}
	for all, status := range billing.Changes(ctx) {
		if status.State != cache.Synced {
			continue // they may be out of date, since status.Since
		}
		for _, one := range all {
			fmt.Println(one.Address, one.Port, one.Payload.Version)
		}
		if len(all) > 0 {
			break
		}
		reg, err := d.Register(ctx, discovery.Instance[Details]{
			Name: "billing", ID: "10.0.0.7:8080", Address: "10.0.0.7", Port: 8080, Payload: Details{Version: "2.1"},
		})
		if err != nil {
			log.Fatal(err)
		}
		defer reg.Close(ctx)
	}
	// Output:
	// 10.0.0.7 8080 2.1
}
