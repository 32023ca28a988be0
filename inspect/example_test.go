package inspect_test

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What one client does is seen by another one.
func Example() {
	ensemble, err := testutil.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ensemble.Close()
	client, err := framework.New(ensemble.Servers())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	mutex, err := locks.NewMutex(client, "/app/report", recipes.WithData([]byte("web-1")))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = recipes.Do(ctx, mutex, func(ctx context.Context, _ *recipes.Lease) error {
		forest, err := inspect.Tree(ctx, client, "/app")
		if err != nil {
			return err
		}
		for _, line := range forest.Lines {
			fmt.Printf("%s: %s, held by %s, %d waiting\n", line.Path, line.Recipe, line.Holders[0].Data, len(line.Waiting))
		}
		found, err := inspect.FindDeadlocks(ctx, client, "/app", inspect.WithPause(time.Second))
		fmt.Println(len(found.Cycles), "deadlocks")
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// /app/report: mutex or election (selector), held by web-1, 0 waiting
	// 0 deadlocks
}
