package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// connect returns a client of an embedded ensemble. A service connects to its
// own.
func connect() (c *framework.Client, stop func()) {
	ens, err := testutil.New()
	if err != nil {
		log.Fatal(err)
	}
	c, err = framework.New(ens.Servers())
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		_ = c.Close()
		_ = ens.Close()
	}
}

func ExampleDo() {
	c, stop := connect()
	defer stop()
	m, err := locks.NewMutex(c, "/app/lock")
	if err != nil {
		log.Fatal(err)
	}
	err = recipes.Do(context.Background(), m, func(ctx context.Context, l *recipes.Lease) error {
		fmt.Println("working:", ctx.Err() == nil) // ctx ends when the lease is lost
		return nil
	})
	fmt.Println("held all along:", err == nil)
	// Output:
	// working: true
	// held all along: true
}

func ExampleTry() {
	c, stop := connect()
	defer stop()
	m, err := locks.NewMutex(c, "/app/lock")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	held, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release(ctx)
	err = recipes.Do(ctx, recipes.Try(m), func(ctx context.Context, l *recipes.Lease) error { return nil })
	fmt.Println("busy:", errors.Is(err, recipes.ErrBusy))
	// Output:
	// busy: true
}

func ExampleWithin() {
	c, stop := connect()
	defer stop()
	m, err := locks.NewMutex(c, "/app/lock")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	err = recipes.Do(ctx, recipes.Within(m, 10*time.Second), func(ctx context.Context, l *recipes.Lease) error {
		_, bounded := ctx.Deadline() // the wait was bounded, the work is not
		fmt.Println("bounded:", bounded)
		return nil
	})
	fmt.Println(err)
	// Output:
	// bounded: false
	// <nil>
}

// A write that is applied only while the lease is held, whatever the clock
// says.
func ExampleLease_Multi() {
	c, stop := connect()
	defer stop()
	ctx := context.Background()
	if _, err := c.Create(ctx, "/config", nil, zk.FlagPersistent); err != nil {
		log.Fatal(err)
	}
	m, err := locks.NewMutex(c, "/app/lock")
	if err != nil {
		log.Fatal(err)
	}
	l, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	set := &zk.SetDataRequest{Path: "/config", Data: []byte("new"), Version: -1}
	_, err = l.Multi(ctx, set)
	fmt.Println("while it is held:", err)
	if err := l.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = l.Multi(ctx, set)
	fmt.Println("after its release:", errors.Is(err, recipes.ErrNotHeld))
	// Output:
	// while it is held: <nil>
	// after its release: true
}

// A resource that remembers the greatest token is safe from a holder that acts
// late.
func ExampleToken() {
	c, stop := connect()
	defer stop()
	m, err := locks.NewMutex(c, "/app/lock")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	var greatest recipes.Token
	accept := func(t recipes.Token) bool {
		if t.Compare(greatest) < 0 {
			return false
		}
		greatest = t
		return true
	}
	var tokens []recipes.Token
	for range 2 {
		err := recipes.Do(ctx, m, func(_ context.Context, l *recipes.Lease) error {
			tokens = append(tokens, l.Token())
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("the second holder:", accept(tokens[1]))
	fmt.Println("the first one, too late:", accept(tokens[0]))
	// Output:
	// the second holder: true
	// the first one, too late: false
}

// A lock of rooms, in which a meeting that needs both rooms conflicts with any
// other meeting.
func ExampleNewLine() {
	c, stop := connect()
	defer stop()
	conflicts := func(mine, theirs string) bool {
		return mine == theirs || mine == "both" || theirs == "both"
	}
	room := func(name string) *recipes.Line {
		l, err := recipes.NewLine(c, "/office/rooms", "rooms.v1", name, conflicts)
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	ctx := context.Background()
	for _, name := range []string{"red", "blue", "both", "red"} {
		l, err := room(name).TryAcquire(ctx)
		if err != nil {
			fmt.Println(name, "is busy:", errors.Is(err, recipes.ErrBusy))
			continue
		}
		fmt.Println(name, "is held")
		defer l.Release(ctx)
	}
	// Output:
	// red is held
	// blue is held
	// both is busy: true
	// red is busy: true
}
