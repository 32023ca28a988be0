package leader_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Run ended for good when the servers refused the client, although the client
// goes on trying, and connects once the password is right.
func TestRunOutlivesARefusal(t *testing.T) {
	bubble.Usual(t, bubble.Below) // its directory cannot be made
	inBubble(t, func(t *testing.T, w *world) {
		var password atomic.Value
		password.Store("secret")
		network := w.ClientNet("a")
		c := w.Connect("a", framework.WithSASL(digestmd5.Func(func() (string, string, error) { return "app", password.Load().(string), nil })))
		e := w.candidate(c, "a")
		terms := make(chan *recipes.Lease)
		ended := make(chan error, 1)
		go func() {
			ended <- e.Run(t.Context(), func(ctx context.Context, l *recipes.Lease) error {
				terms <- l
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), leader.ErrResigned) {
					return leader.ErrStop
				}
				return nil
			})
		}()
		first := <-terms
		password.Store("wrong")
		network.Drop()
		bubble.Await(t, "the term to be lost", first.Lost())
		time.Sleep(10 * time.Minute)
		if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, framework.ErrAuthFailed) {
			t.Errorf("error %v", err)
		}
		password.Store("secret")
		select {
		case <-terms:
		case err := <-ended:
			t.Fatalf("Run has ended: %v", err)
		case <-time.After(5 * time.Minute):
			t.Fatal("no further term")
		}
		e.Resign()
		must(t, <-ended)
	}, testutil.WithMembers(3), testutil.WithSASL(map[string]string{"app": "secret"}), testutil.WithEnforcedAuth("sasl"))
}

// A client that the servers let connect, and whose requests they answer with
// -124, campaigned again without end: the next connection was to mend that, and
// it brings the same answer.
func TestRunEndsWhereMoreIsRequired(t *testing.T) {
	bubble.Usual(t, bubble.Below) // its directory cannot be made
	app := digestmd5.New("app", "secret")
	for name, tt := range map[string]struct {
		required string
		opts     []framework.Option
	}{
		"SASL":           {"sasl", nil},
		"another scheme": {"digest", []framework.Option{framework.WithSASL(app)}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c, err := framework.New(w.Servers(), append(tt.opts, framework.WithDialer(w.ClientNet("a").Dial))...)
				must(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = w.candidate(c, "a").Run(ctx, func(context.Context, *recipes.Lease) error {
					t.Error("a term")
					return leader.ErrStop
				})
				if !errors.Is(err, framework.ErrAuthRequired) || !strings.Contains(err.Error(), "member") || ctx.Err() != nil {
					t.Errorf("error %v", err)
				}
				if err := c.Close(); err == nil {
					t.Error("the session was closed without what is required")
				}
			}, testutil.WithMembers(3), testutil.WithSASL(map[string]string{"app": "secret"}), testutil.WithEnforcedAuth(tt.required))
		})
	}
}
