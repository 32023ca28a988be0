package main

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// writer writes a line of the report.
type writer func(token recipes.Token, line string) error

// report writes a line a second while it holds the lock.
func report(ctx context.Context, client *framework.Client, write writer) error {
	mutex, err := locks.NewMutex(client, "/locks/report")
	if err != nil {
		return err
	}
	return recipes.Do(ctx, mutex, func(ctx context.Context, lease *recipes.Lease) error {
		for n := 1; ctx.Err() == nil; n++ { // until a signal, or until the lock is lost
			if err := write(lease.Token(), fmt.Sprint("line ", n)); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		return context.Cause(ctx)
	})
}

// show prints a line.
func show(token recipes.Token, line string) error {
	_, err := fmt.Println(line, "with token", token)
	return err
}
