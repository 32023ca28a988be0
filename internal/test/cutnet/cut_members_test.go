//go:build unix

package cutnet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Members of older releases (3.8.0) that leave their leader, without any crash,
// can go on with transactions that the others do not have, or lack some (most
// likely ZOOKEEPER-4541 and ZOOKEEPER-4712, mended in 3.9.3). Then clients wait
// for znodes that no client can remove, or two contenders get one number. No
// library helps against that, and nothing that a client does causes it. So a
// test that fails is skipped if the members show different trees, or if two
// contenders have one number, which servers give, and members are of the
// opinion that their trees differ. That opinion alone is not enough: members of
// 3.9.5 had it in a run in which nothing else was wrong.

// fail fails the test, or skips it if the members do not agree.
func (c *cutting) fail(format string, args ...any) {
	c.t.Helper()
	what := fmt.Sprintf(format, args...)
	members := c.mismatches()
	opinion := fmt.Sprintf("members that have found their trees different from the leader's: %v", members)
	if different := c.differences(); len(different) > 0 {
		c.t.Skipf("%s, but the members of the ensemble do not agree: %s; %s", what, strings.Join(different, "; "), opinion)
	}
	if strings.Contains(what, recipes.ErrExhausted.Error()) && len(members) > 0 {
		c.t.Skipf("%s, but two contenders have one number; %s", what, opinion)
	}
	c.t.Fatalf("%s; %s", what, opinion)
}

// eventually waits for a condition.
func (c *cutting) eventually(what string, condition func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(load.Patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.fail("not in %v: %s", load.Patience, what)
		}
	}
}

// alive fails the test if a process has printed anything, or ended, though
// nothing is expected of it.
func (c *cutting) alive(p *load.Process) {
	c.t.Helper()
	select {
	case line, ok := <-p.Lines:
		c.fail("process %d printed %q, or has ended: %v", p.Pid, line, !ok)
	default:
	}
}

// ask sends a four-letter word to a member, and returns the answer.
func ask(address, word string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, load.Patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(load.Patience))
	if _, err = io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// mismatches returns the members that have found their own tree different from
// the leader's. Since 3.6 they compare digests with each transaction.
func (c *cutting) mismatches() (members []int) {
	for member, address := range strings.Split(c.ens.Servers(), ",") {
		answer, err := ask(address, "mntr")
		if err != nil {
			c.t.Logf("member %d: %v", member, err)
			continue
		}
		for line := range strings.Lines(answer) {
			if count, ok := strings.CutPrefix(line, "zk_digest_mismatches_count"); ok && strings.TrimSpace(count) != "0" {
				members = append(members, member)
			}
		}
	}
	return members
}

// children lists a directory below the load's path, after a sync.
func (c *cutting) children(client *framework.Client, dir string) ([]string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), load.Patience/4)
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
// and another one has not. Each of their transaction ids begins with the epoch
// of the leader that has proposed it.
func (c *cutting) differences() (all []string) {
	const looks = 20
	seen := map[string][cutMembers]int{} // how often, by path and member
	silent := [cutMembers]bool{}
	var clients [cutMembers]*framework.Client
	for member, address := range strings.Split(c.ens.Servers(), ",") {
		clients[member] = c.connect(address)
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
				if silent[member] {
					continue
				}
				names, err := c.children(client, dir)
				if err != nil {
					c.t.Logf("member %d does not show %s: %v", member, dir, err)
					silent[member] = true
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
		shown, hidden := -1, -1
		for member, n := range counts {
			switch {
			case n == looks:
				shown = member
			case n == 0 && !silent[member]:
				hidden = member
			}
		}
		if shown >= 0 && hidden >= 0 {
			_, stat, err := clients[shown].Exists(c.t.Context(), c.path+"/"+path)
			all = append(all, fmt.Sprintf("%s was shown %v times by the members; at member %d: %+v %v", path, counts, shown, stat, err))
		}
	}
	slices.Sort(all)
	return all
}
