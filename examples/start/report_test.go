package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithTimeLimit(10*time.Minute))
		shared := new(store)
		ctx, stop := context.WithCancel(t.Context())
		start := func(name string, write writer) <-chan error {
			client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(name).Dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			ended := make(chan error, 1)
			go func() { ended <- report(ctx, client, write) }()
			time.Sleep(time.Minute)
			return ended
		}
		var old recipes.Token
		first := start("first", func(token recipes.Token, line string) error {
			old = token
			return shared.write(token, line)
		})
		second := start("second", shared.write) // waits in line

		ens.ClientNet("first").Cut()
		if err := <-first; !errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("the loss is not noticed: %v", err)
		}
		time.Sleep(time.Minute) // the second one writes
		if err := shared.write(old, "late"); !errors.Is(err, errLate) {
			t.Errorf("a late line is not refused: %v", err)
		}
		stop()
		<-second // every goroutine of the bubble must have ended, else synctest panics
	})
}
