package recheck_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// What ends a wait, what it returns then, and when.
func TestWait(t *testing.T) {
	failed := errors.New("failed")
	const soon = time.Second
	for name, test := range map[string]struct {
		begin func(w *bubble.World, c *framework.Client, cancel func(), event chan struct{}) // what ends it after a second
		look  func(look int) (bool, error)
		want  error
		looks int // at most
	}{
		"an event": {begin: func(_ *bubble.World, _ *framework.Client, _ func(), event chan struct{}) {
			time.AfterFunc(soon, func() { close(event) })
		}},
		"the end of the context": {begin: func(_ *bubble.World, _ *framework.Client, cancel func(), _ chan struct{}) {
			time.AfterFunc(soon, cancel)
		}, want: context.Canceled},
		"the end of the session": {begin: func(w *bubble.World, c *framework.Client, _ func(), _ chan struct{}) {
			w.Expire(c)
		}, want: framework.ErrSessionLost},
		"a look":       {look: func(look int) (bool, error) { return look == 3, nil }, looks: 3},
		"a failed one": {look: func(look int) (bool, error) { return false, failed }, want: failed, looks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.ConnectNext()
				sess := (*managed.Session)(w.Session(c))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				event := make(chan struct{})
				if test.begin != nil {
					test.begin(w, c, cancel, event)
				}
				began, looks := time.Now(), 0
				err := recheck.Wait(ctx, sess, func() (bool, error) {
					looks++
					return test.look(looks)
				}, nil, nil, event)
				if !errors.Is(err, test.want) {
					t.Errorf("got error %v, want %v", err, test.want)
				}
				took, least, most := time.Since(began), time.Duration(test.looks)*bubble.Timeout*3/4, time.Duration(test.looks)*bubble.Timeout*5/4
				if looks != test.looks || took < least || took > most+2*soon {
					t.Errorf("it has ended after %v and %d looks, want %d", took, looks, test.looks)
				}
			})
		})
	}
}
