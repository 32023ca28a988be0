package managed_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The servers check the path of a sequential znode with its number. So do we:
// also below a chroot, where the path "/" must not name a sibling of the
// chroot.
func TestSequentialNames(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		sequentialNames(t, c)
		for _, root := range []string{"/seq", "/seq/deep"} {
			must(t, c.MakePersistentPath(t.Context(), root))
			sequentialNames(t, below(t, ens, root))
			name, err := c.Namespace(root[1:])
			must(t, err)
			sequentialNames(t, name)
		}
		names := ens.Children("/seq")
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "deep0") }) {
			t.Errorf("beside the root: %q", names)
		}
	}, testutil.WithExtendedTypes())
}

func TestSequentialNamesOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	for _, root := range []string{"", "/chroot"} {
		c, err := framework.New(ens.Servers()+root, framework.WithDialer(ens.Dial), framework.WithCreateChroot())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		must(t, c.WaitConnected(t.Context()))
		sequentialNames(t, c)
	}
}

var numbered = regexp.MustCompile(`^\d{10}$`)

func sequentialNames(t *testing.T, c *framework.Client) {
	t.Helper()
	must(t, c.MakePersistentPath(t.Context(), "/dir"))
	const alsoEphemeral = zk.FlagSequence | zk.FlagEphemeral
	for at, ok := range map[string]bool{
		"/dir/": true, "/": true, "/dir/n-": true, "/dir/..n": true,
		"": false, "dir/": false, "/dir//": false, "//": false, "/dir/./": false, "/dir/../n-": false, "/dir/\x01": false,
	} {
		check := func(how, made string, err error) {
			t.Helper()
			number, prefixed := strings.CutPrefix(made, at)
			switch {
			case err == nil != ok || ok && !(prefixed && numbered.MatchString(number)):
				t.Errorf("%s %q: %q, %v", how, at, made, err)
			case ok:
				names, _, err := c.Children(t.Context(), path.Dir(made))
				if err != nil || !slices.Contains(names, path.Base(made)) {
					t.Errorf("%s %q: %q is not among %q, %v", how, at, made, names, err)
				}
			}
		}
		for _, flags := range []int32{zk.FlagSequence, alsoEphemeral} {
			made, err := c.Create(t.Context(), at, nil, flags)
			check("Create", made, err)
			made, err = madeBy(t, c, at, flags)
			check("Multi", made, err)
		}
		if _, err := c.Create(t.Context(), at, nil, zk.FlagPersistent); err == nil && strings.HasSuffix(at, "/") {
			t.Errorf("%q is made without a number", at)
		}
	}
	// The wire client refuses these in a Create. The servers take them.
	for _, at := range []string{"/dir/.", "/dir/.."} {
		if _, err := c.Create(t.Context(), at, nil, zk.FlagSequence); err == nil {
			t.Errorf("Create %q succeeds", at)
		}
		if made, err := madeBy(t, c, at, zk.FlagSequence); err != nil || !strings.HasPrefix(made, at+"0") {
			t.Errorf("Multi %q: %q, %v", at, made, err)
		}
	}
}

// madeBy creates a znode by a multi.
func madeBy(t *testing.T, c *framework.Client, at string, flags int32) (string, error) {
	t.Helper()
	responses, err := c.Multi(t.Context(), &zk.CreateRequest{Path: at, Flags: flags})
	if err != nil {
		return "", err
	}
	return responses[0].String, nil
}
