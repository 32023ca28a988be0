//go:build unix

package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// eventually waits for a condition. If it waits in vain it fails the test,
// unless the members have different trees. Members of older releases (3.8.0)
// that leave their leader, without any crash, can go on with transactions that
// the others do not have, or lack some (ZOOKEEPER-4712, -4541; mended in 3.9.3).
// Their clients wait for znodes that no client can remove. No library helps
// against that, and nothing that a client does causes it: the test is skipped.
func (c *cutting) eventually(what string, condition func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().Before(deadline) {
			continue
		}
		if different := c.differences(); len(different) > 0 {
			c.t.Skipf("not in %v: %s, but the members of the ensemble do not agree: %s", patience, what, strings.Join(different, "; "))
		}
		c.t.Fatalf("not in %v: %s", patience, what)
	}
}

// children lists a directory below the load's path, after a sync.
func (c *cutting) children(client *framework.Client, dir string) ([]string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience/4)
	defer cancel()
	if err := client.Sync(ctx, c.path+"/"+dir); err != nil {
		return nil, err
	}
	names, _, err := client.Children(ctx, c.path+"/"+dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// differences returns the znodes that one member has shown for several seconds,
// and another one has not.
func (c *cutting) differences() (all []string) {
	const looks = 20
	seen := map[string][cutMembers]int{} // how often, by path and member
	var clients [cutMembers]*framework.Client
	for member, address := range strings.Split(c.ens.Servers(), ",") {
		client, err := framework.New(address, framework.WithSessionTimeout(timeout))
		if err != nil {
			c.t.Fatal(err)
		}
		defer client.Close()
		clients[member] = client
	}
	var dirs []string
	for _, lock := range cutLocks {
		dirs = append(dirs, lock.dirs...)
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for range looks {
		for _, dir := range dirs {
			for member, client := range clients {
				names, err := c.children(client, dir)
				if err != nil {
					c.t.Logf("member %d does not show %s: %v", member, dir, err)
					return nil
				}
				for _, name := range names {
					counts := seen[dir+"/"+name]
					counts[member]++
					seen[dir+"/"+name] = counts
				}
			}
		}
		time.Sleep(250 * time.Millisecond)
	}
	for path, counts := range seen {
		if slices.Min(counts[:]) == 0 && slices.Max(counts[:]) == looks {
			all = append(all, fmt.Sprintf("%s was shown %v times by the members", path, counts))
		}
	}
	slices.Sort(all)
	return all
}
