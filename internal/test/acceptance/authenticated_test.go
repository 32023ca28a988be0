package acceptance_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// authenticated is an ensemble that requires SASL. All clients that the tests
// and the neighbors open there are the user app, and their znodes are for that
// user alone.
type authenticated struct{ testutil.Ensemble }

const (
	userVariable     = "ZKR_NEIGHBOR_USER"
	passwordVariable = "ZKR_NEIGHBOR_PASSWORD"
)

// identity returns the options of a client for a user, none for no user.
func identity(user, password string) []framework.Option {
	if user == "" {
		return nil
	}
	return []framework.Option{framework.WithSASL(digestmd5.New(user, password)), framework.WithACL(forUser(user))}
}

func forUser(user string) zk.ACL { return zk.ACL{Perms: zk.PermAll, Scheme: "sasl", ID: user} }

// identityAt returns the options of a client of an ensemble.
func identityAt(ens testutil.Ensemble) []framework.Option {
	if _, ok := ens.(authenticated); ok {
		return identity("app", "secret")
	}
	return nil
}

// environment is that of a neighbor.
func environment(ens testutil.Ensemble) []string {
	if _, ok := ens.(authenticated); ok {
		return append(os.Environ(), userVariable+"=app", passwordVariable+"=secret")
	}
	return os.Environ()
}

// Curator, Kazoo and we stand in the same lines where the servers require SASL,
// and each makes znodes that others can neither read nor change.
func TestAuthenticatedNeighbors(t *testing.T) {
	needsCurator(t)
	needsKazoo(t)
	if out, err := exec.Command(python(), "-c", "import puresasl").CombinedOutput(); err != nil {
		missing(t, "SASL for Kazoo (Debian's package python3-pure-sasl)", fmt.Errorf("%w: %s", err, out))
	}
	users := map[string]string{"app": "secret", "other": "secret"}
	for name, start := range map[string]func(t *testing.T) testutil.Ensemble{
		"embedded": func(t *testing.T) testutil.Ensemble {
			return embedded(t, 1, testutil.WithSASL(users), testutil.WithEnforcedAuth("sasl"))
		},
		"real": func(t *testing.T) testutil.Ensemble {
			return apache.Start(t, 1, apache.WithProperty("zookeeper.sessionRequireClientSASLAuth", "true"),
				apache.WithJAAS(`Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_app="secret" user_other="secret"; };`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ens := authenticated{start(t)}
			t.Run("ACLs", func(t *testing.T) { keepsOthersOut(t, ens) })
			for _, neighbor := range []struct {
				start starter
				repertoire
			}{
				{kazoo, repertoire{alone: []string{"kazoo-lock"}, read: "kazoo-read", write: "kazoo-write"}},
				{curator, repertoire{alone: []string{"mutex"}, read: "read", write: "write", semaphore: "semaphore"}},
			} {
				watcher, theirs, own := client(t, ens), neighbor.start(t, ens), ours(t, ens)
				t.Run(theirs.who, func(t *testing.T) {
					takeTurns(t, watcher, neighbor.alone[0], theirs, own)
					readAndWrite(t, watcher, neighbor.repertoire, theirs, own)
					if neighbor.semaphore != "" {
						sharePermits(t, watcher, neighbor.repertoire, theirs, own)
					}
				})
			}
		})
	}
}

// keepsOthersOut checks the znodes of a holder of each kind.
func keepsOthersOut(t *testing.T, ens authenticated) {
	watcher := client(t, ens)
	stranger, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial), framework.WithSASL(digestmd5.New("other", "secret")))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for kind, start := range map[string]starter{"kazoo-lock": kazoo, "mutex": curator, "kazoo-election": ours} {
		path := "/private/" + kind
		m := start(t, ens).join(t, kind, path)
		m.acquire(t)
		children, _, err := watcher.Children(t.Context(), path)
		if err != nil || len(children) != 1 {
			t.Fatalf("%s: %q, %v", kind, children, err)
		}
		for _, znode := range []string{path, path + "/" + children[0]} {
			acl, _, err := watcher.GetACL(t.Context(), znode)
			if err != nil || !slices.Equal(acl, []zk.ACL{forUser("app")}) {
				t.Errorf("%s: ACL %v, %v", znode, acl, err)
			}
			if _, _, err := stranger.Get(t.Context(), znode); !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("another user reads %s: %v", znode, err)
			}
			if err := stranger.Delete(t.Context(), znode, -1); !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("another user deletes %s: %v", znode, err)
			}
		}
		lock, err := locks.NewMutex(stranger, path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lock.Acquire(t.Context()); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("another user stands in line at %s: %v", path, err)
		}
		m.release(t)
	}
}
