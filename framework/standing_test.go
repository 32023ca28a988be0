package framework_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// stand is Session.Stand at /lock.
func stand(t *testing.T, s *framework.Session) *framework.Standing {
	t.Helper()
	d, err := s.Stand(t.Context(), "/lock")
	must(t, err)
	return d
}

// createOnly is Session.CreateOnly in /lock.
func createOnly(t *testing.T, s *framework.Session) framework.Created {
	t.Helper()
	made, err := s.CreateOnly(t.Context(), "/lock", "lock-", nil, sequential)
	must(t, err)
	return made
}

// A create without a list costs one request, and tells its transaction.
func TestCreateOnly(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakePath(t.Context(), "/lock"))
		ens.ResetRequests()
		made := createOnly(t, s)
		time.Sleep(100 * time.Millisecond)
		if got := ens.Requests(); got[testutil.OpCreate] != 1 || len(got) != 1 {
			t.Errorf("requests: %v", got)
		}
		_, stat, err := s.Exists(t.Context(), made.Path)
		must(t, err)
		if made.Zxid != stat.Czxid || made.Children != nil {
			t.Errorf("created %+v, by transaction %d", made, stat.Czxid)
		}
	})
}

// What is not the same any more, or may not be, is never said to be: not even when
// the very next request is the create in what was made anew.
func TestStanding(t *testing.T) {
	for _, test := range []struct {
		name    string
		happens func(t *testing.T, ens *testutil.Embedded, s *framework.Session, other *framework.Client, network *testutil.ClientNet)
		stands  bool
	}{
		{"nothing", func(*testing.T, *testutil.Embedded, *framework.Session, *framework.Client, *testutil.ClientNet) {}, true},
		{"children come and go", func(t *testing.T, _ *testutil.Embedded, s *framework.Session, other *framework.Client, _ *testutil.ClientNet) {
			must(t, s.Delete(t.Context(), createOnly(t, s).Path, -1))
			_, err := other.Create(t.Context(), "/lock/x", nil, zk.FlagPersistent)
			must(t, err)
			must(t, other.Delete(t.Context(), "/lock/x", -1))
		}, true},
		{"it is made anew", func(t *testing.T, _ *testutil.Embedded, _ *framework.Session, other *framework.Client, _ *testutil.ClientNet) {
			must(t, other.Delete(t.Context(), "/lock", -1))
			must(t, other.MakePath(t.Context(), "/lock"))
		}, false},
		{"its data change", func(t *testing.T, _ *testutil.Embedded, _ *framework.Session, other *framework.Client, _ *testutil.ClientNet) {
			_, err := other.Set(t.Context(), "/lock", []byte("x"), -1)
			must(t, err)
		}, false},
		{"another connection", func(t *testing.T, _ *testutil.Embedded, _ *framework.Session, _ *framework.Client, network *testutil.ClientNet) {
			network.Drop()
			time.Sleep(time.Second)
		}, false},
		{"a request is in the way when the connection ends", func(t *testing.T, ens *testutil.Embedded, _ *framework.Session, _ *framework.Client, _ *testutil.ClientNet) {
			once(ens, testutil.OpCreate, testutil.DropBefore())
		}, false},
		{"the answer is lost", func(t *testing.T, ens *testutil.Embedded, _ *framework.Session, _ *framework.Client, _ *testutil.ClientNet) {
			once(ens, testutil.OpCreate, testutil.DropAfter())
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				other, _ := connect(t, ens)
				s := session(t, c)
				must(t, s.MakePath(t.Context(), "/lock"))
				d := stand(t, s)
				if !d.Stands(s) || !d.Has(s, createOnly(t, s)) {
					t.Error("at first: it does not stand")
				}
				must(t, s.Delete(t.Context(), "/lock/"+ens.Children("/lock")[0], -1))
				test.happens(t, ens, s, other, network)
				made := createOnly(t, s)
				if got := d.Has(s, made); got != test.stands {
					t.Errorf("it is said to have what was created in it: %v", got)
				}
				if again := stand(t, s); !again.Has(s, createOnly(t, s)) {
					t.Error("looked at again: it does not stand")
				}
			})
		})
	}
}

// In the next session nothing is known of what stood in the last one.
func TestNothingStandsInTheNextSession(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakePath(t.Context(), "/lock"))
		d := stand(t, s)
		must(t, ens.ExpireSession(s.ID()))
		time.Sleep(2 * timeout)
		next := session(t, c)
		if next.ID() == s.ID() || d.Stands(next) || d.Has(next, createOnly(t, next)) {
			t.Error("it stands")
		}
		if d.Stands(s) {
			t.Error("it stands in a session that is over")
		}
	})
}

// What is not there does not stand, and leaves no watch.
func TestWhatIsNotThereDoesNotStand(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		if _, err := session(t, c).Stand(t.Context(), "/lock"); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("error %v", err)
		}
		if got := ens.Watches(); len(got) != 0 {
			t.Errorf("watches: %v", got)
		}
	})
}
