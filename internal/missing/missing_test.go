package missing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/missing"
)

// The directory is made as often as it is missing, nine times at most, with
// pauses after the first three.
func TestCreate(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		create, make func(call int) error
		want         error
		text         string
		creates      int
		pauses       bool
	}{
		"it is there":         {create: func(int) error { return nil }, creates: 1},
		"the create fails":    {create: func(int) error { return refused }, want: refused, creates: 1},
		"it is missing":       {create: until(1), creates: 2},
		"it is gone twice":    {create: until(3), creates: 4},
		"it is gone often":    {create: until(9), creates: 10, pauses: true},
		"it is gone for ever": {create: until(100), want: zk.ErrNoNode, text: "directory /a/b was made 9 times", creates: 10, pauses: true},
		"it cannot be made":   {create: until(1), make: func(int) error { return refused }, want: refused, creates: 1},
		"nor made again":      {create: until(5), make: func(call int) error { return map[int]error{2: refused}[call] }, want: refused, creates: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, creates, makes := time.Now(), 0, 0
				err := missing.Create(t.Context(), nil, "/a/b", func() error {
					if makes++; test.make != nil {
						return test.make(makes)
					}
					return nil
				}, func() error {
					creates++
					return test.create(creates)
				})
				if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || test.text != "" && !strings.Contains(err.Error(), test.text) {
					t.Errorf("got error %v, want %v", err, test.want)
				}
				failed := 0
				if test.make != nil {
					failed = 1
				}
				if creates != test.creates || makes != creates-1+failed {
					t.Errorf("%d creates, want %d; %d directories made", creates, test.creates, makes)
				}
				if took := time.Since(began); (took > 0) != test.pauses || took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// until finds no directory in the first calls.
func until(calls int) func(call int) error {
	return func(call int) error {
		if call <= calls {
			return fmt.Errorf("create /a/b/c: %w", zk.ErrNoNode)
		}
		return nil
	}
}

// A pause ends with the context and with what makes the create useless.
func TestAPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		over, began := make(chan struct{}), time.Now()
		close(over)
		none := func() error { return nil }
		_ = missing.Create(ctx, nil, "/a", none, func() error { return until(9)(1) })
		_ = missing.Create(t.Context(), over, "/a", none, func() error { return until(9)(1) })
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

type noChroot struct{ error }

func (noChroot) MissingChroot() string { return "/app" }

func TestChroot(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                    false,
		zk.ErrNoNode:           false,
		noChroot{zk.ErrNoNode}: true,
		fmt.Errorf("get /a: %w", noChroot{errors.New("no")}): true,
	} {
		if got := missing.Chroot(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
