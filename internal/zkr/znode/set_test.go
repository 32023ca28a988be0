package znode

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestSetACLOfATree: every znode has the new ACL, ephemeral ones included, but
// for one that is deleted while the command runs.
func TestSetACLOfATree(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	all := grow(t, c, "/tree", 60)
	if _, err := c.Create(t.Context(), "/tree/2/owned", nil, zk.FlagEphemeral); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	var writes atomic.Int32
	t.Cleanup(e.Control(func(r testutil.Request) testutil.Action {
		if r.Op != testutil.OpSetACL || writes.Add(1) != 1 {
			return testutil.Pass()
		}
		done := make(chan struct{})
		go func() { // ends when the znode is deleted
			defer close(done)
			if err := c.Delete(ctx, "/tree/2/059", -1); err != nil {
				t.Error(err)
			}
		}()
		return testutil.Hold(done)
	}))
	code, text := zkrtest.Zkr(e, "set", "--acl", "world:anyone:cdra", "--recursive", "--json", "/tree")
	if want := len(all); code != 0 || strings.Count(text, "\n") != want || strings.Contains(text, "/tree/2/059") {
		t.Errorf("exit code %d; %d lines of %d: %s", code, strings.Count(text, "\n"), want, text)
	}
	for _, at := range append(all, "/tree/2/owned") {
		if at == "/tree/2/059" {
			continue
		}
		acl, _, err := c.GetACL(t.Context(), at)
		if err != nil || len(acl) != 1 || cli.FormatACL(acl[0]) != "world:anyone:cdra" {
			t.Errorf("%s: %v, %v", at, acl, err)
		}
	}
}

// TestSetACLOfATreeWithoutTheRight: the rest is changed, and the exit code
// says that something was left out.
func TestSetACLOfATreeWithoutTheRight(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	grow(t, c, "/tree", 3)
	for at, acl := range map[string]zk.ACL{
		"/tree/1":     {Scheme: "world", ID: "anyone", Perms: zk.PermAdmin},               // its children cannot be listed
		"/tree/0/001": {Scheme: "world", ID: "anyone", Perms: zk.PermAll &^ zk.PermAdmin}, // it cannot be changed
	} {
		if _, err := c.SetACL(t.Context(), at, []zk.ACL{acl}, -1); err != nil {
			t.Fatal(err)
		}
	}
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"2 of 10 znodes were left out", "not allowed by the ACL"},
		"set", "--acl", "world:anyone:ra", "--recursive", "/tree")
	for at, want := range map[string]string{"/tree/0/001": "cdrw", "/tree/1": "ra", "/tree/1/001": "cdrwa", "/tree/2/002": "ra"} {
		if acl, _, err := c.GetACL(t.Context(), at); err != nil || cli.FormatACL(acl[0]) != "world:anyone:"+want {
			t.Errorf("%s: %v, %v", at, acl, err)
		}
	}
}

func TestSetACLOfATreeRefuses(t *testing.T) {
	e := testutil.Start(t)
	for text, args := range map[string][]string{
		"--recursive needs --acl":                     {"set", "--recursive", "/tree", "x"},
		"--version and --recursive":                   {"set", "--recursive", "--version", "1", "--acl", "world:anyone:r", "/tree"},
		"/zookeeper/quota: has znodes of the servers": {"set", "--recursive", "--acl", "world:anyone:r", "/zookeeper/quota"},
		"/: has znodes of the servers":                {"set", "--recursive", "--acl", "world:anyone:r", "/"},
		"list /none: node does not exist":             nil,
	} {
		want := cli.ExitUsage
		if args == nil {
			args, want = []string{"set", "--recursive", "--acl", "world:anyone:r", "/none"}, cli.ExitFailed
		}
		zkrtest.RefusesZkr(t, e, want, []string{text}, args[0], args[1:]...)
	}
}
