package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// said is what a command has printed.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// take returns what was printed since, without times.
func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return regexp.MustCompile(`(?m)^\S+Z  `).ReplaceAllString(s.text.String(), "")
}

// zkr members prints who is in a group, and zkr members --follow who comes and
// goes, over lost connections and sessions.
func TestMembers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const path = "/services/billing"
		c, other := w.Connect("follower"), w.ConnectNext()
		g, err := presence.NewGroup(other, path)
		if err != nil {
			t.Fatal(err)
		}
		join := func(id, data string) *presence.Node {
			t.Helper()
			n, err := g.Join(t.Context(), id, []byte(data))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		list := func(asJSON bool) string {
			t.Helper()
			var out said
			m := members{layout: cli.GroupLayout(), json: asJSON, out: &out}
			if err := m.list(t.Context(), c, path); err != nil {
				t.Error(err)
			}
			return out.take()
		}
		if got := list(false); got != "" {
			t.Errorf("%q before any has joined", got)
		}
		b := join("b", "text")
		join("a", "\xff")
		if got := list(false); got != "a\nb\n" {
			t.Errorf("%q", got)
		}
		lines := strings.Split(list(true), "\n")
		var first, second member
		if json.Unmarshal([]byte(lines[0]), &first) != nil || json.Unmarshal([]byte(lines[1]), &second) != nil ||
			first.ID != "a" || string(first.Binary) != "\xff" || first.Time != nil || second.ID != "b" || *second.Data != "text" || second.Znode != path+"/b" {
			t.Errorf("%q", lines)
		}

		var out said
		ctx, end := context.WithCancelCause(t.Context())
		ended := make(chan error)
		m := members{layout: cli.GroupLayout(), follow: true, out: &out, errs: &out}
		go func() { ended <- m.run(ctx, c, path) }()
		expect := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := out.take(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		expect("member   a\nmember   b\n")
		if err := b.Set(t.Context(), []byte("other")); err != nil {
			t.Error(err)
		}
		expect("changed  b\n")
		w.ClientNet("follower").Cut()
		w.ClientNet("follower").Drop()
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		join("c", "")
		expect("")
		w.ClientNet("follower").Heal()
		time.Sleep(bubble.Timeout)
		expect("left     b\njoined   c\n")
		if err := w.ExpireSession(w.SessionID(other)); err != nil {
			t.Error(err)
		}
		time.Sleep(bubble.Timeout)
		synctest.Wait()
		if got := out.take(); strings.Count(got, "left ") != 2 || strings.Count(got, "joined ") != 2 {
			t.Errorf("%q", got)
		}
		end(context.Canceled)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// zkr members waits until the server that it reads from has caught up.
func TestMembersOfAServerThatLags(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		far := (w.Leader() + 1) % 3
		c, other := w.ConnectTo("reader", w.Address(far)), w.ConnectTo("other", w.Address(w.Leader()))
		w.Lag(far)
		g, err := presence.NewGroup(other, "/g")
		if err == nil {
			_, err = g.Join(t.Context(), "a", nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		var out said
		m := members{layout: cli.GroupLayout(), out: &out}
		listed := make(chan error, 1)
		go func() { listed <- m.list(t.Context(), c, "/g") }()
		time.Sleep(time.Second)
		w.Unlag(far)
		err = bubble.Await(t, "the list", listed)
		if got := out.take(); err != nil || got != "a\n" {
			t.Errorf("it prints %q, %v", got, err)
		}
	}, testutil.WithMembers(3))
}

// A member that may not be read hides no other. It is named on stderr, and the
// list ends with an error; --follow goes on.
func TestMembersThatMayNotBeRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, owner := w.ConnectNext(), w.ConnectNext(framework.WithAuth("digest", []byte("a:b")))
		join := func(id string, opts ...presence.Option) {
			t.Helper()
			g, err := presence.NewGroup(owner, "/g", opts...)
			if err == nil {
				_, err = g.Join(t.Context(), id, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		only := recipes.WithACL(zk.AuthACL(zk.PermAll)...)
		join("a")
		join("b", only)
		var out, errs said
		m := members{layout: cli.GroupLayout(), out: &out, errs: &errs}
		err := m.list(t.Context(), c, "/g")
		if got := out.take(); got != "a\n" || !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "/g/b") {
			t.Errorf("%q, %v", got, err)
		}
		ctx, end := context.WithCancelCause(t.Context())
		ended := make(chan error)
		m.follow = true
		go func() { ended <- m.run(ctx, c, "/g") }()
		time.Sleep(time.Second)
		synctest.Wait()
		if got, gotErrs := out.take(), errs.take(); got != "member   a\n" || gotErrs != "zkr: read /g/b: not allowed by the ACL: neither they nor what is below them is printed\n" {
			t.Errorf("%q and %q", got, gotErrs)
		}
		join("c")
		time.Sleep(time.Second)
		synctest.Wait()
		if got, gotErrs := out.take(), errs.take(); got != "joined   c\n" || gotErrs != "" {
			t.Errorf("%q and %q", got, gotErrs)
		}
		end(context.Canceled)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := owner.SetACL(t.Context(), "/g", zk.AuthACL(zk.PermAll), -1); err != nil {
			t.Fatal(err)
		}
		if list, run := m.list(t.Context(), c, "/g"), m.run(t.Context(), c, "/g"); !errors.Is(list, zk.ErrNoAuth) || !errors.Is(run, zk.ErrNoAuth) {
			t.Errorf("a group that may not be read: %v, %v", list, run)
		}
	})
}
