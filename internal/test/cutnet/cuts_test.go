//go:build unix

package cutnet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/cutnet"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The nodes of a network that is cut: members, processes that use the recipes,
// and this process.
const (
	cutMembers   = 3
	cutProcesses = 3
	cutNodes     = cutMembers + cutProcesses
	cutHere      = cutNodes
)

// cuts are the ways in which the network fails. A leader that has lost its
// quorum and does not know it yet answers a sync: what it proves with ProofSync
// is not covered. So processes use ProofWrite where the leader may lose its
// quorum.
var cuts = []struct {
	name  string
	proof string
	// strike makes the network fail, for about d, and says how. It need not
	// heal it.
	strike func(c *cutting, d time.Duration)
}{
	{"partition", "write", (*cutting).partition},
	{"what one says is lost", "write", (*cutting).mute},
	{"what one is told is lost", "write", (*cutting).deafen},
	{"slow", "write", (*cutting).slow},
	{"lossy", "write", (*cutting).lossy},
	{"the leader alone", "write", (*cutting).leaderAlone},
	{"a minority with a holder", "sync", (*cutting).minorityWithHolder},
	{"flapping", "write", (*cutting).flap},
	{"clients only", "sync", (*cutting).clientsOnly},
}

// All recipes on three real members, used by three processes, while the network
// between members and to the processes fails in one way. By the ledgers there
// are never two exclusive holders or too many permits, and tokens increase. By
// porcupine every history of grants, ends and guarded writes is that of one
// lock. Whenever the network heals, every contender is granted again, and
// nothing is left.
//
// Each takes ZKR_CUTS, with the faults of ZKR_SEED, which it prints.
// ZKR_NETWORK chooses what the network is made of. A process that the machine
// does not run for longer than its stop margin, 3/10 of ZKR_CUTS_SESSION (five
// seconds), holds too long: how long it was is printed. So CI does not run it.
func TestTheNetworkIsCut(t *testing.T) {
	if os.Getenv("ZKR_CUTS") == "" {
		t.Skip("needs a machine that runs each process in time: make cuts")
	}
	namespaces, why, err := cutnet.Choose()
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			var network cutnet.Network = cutnet.NewRelays()
			switch {
			case namespaces && !cutnet.Isolated():
				cutnet.Rerun(t)
				return
			case namespaces:
				if network, err = cutnet.NewNamespaces(cutHere); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("the network: %T: %s", network, why)
			t.Cleanup(func() {
				if err := network.Close(); err != nil {
					t.Error(err)
				}
			})
			newCutting(t, network, cut.proof).run(cut.strike)
		})
	}
}

// cutting is one run.
type cutting struct {
	t        *testing.T
	net      cutnet.Network
	rnd      *rand.Rand
	ens      *apache.Ensemble
	dir      string
	path     string
	began    time.Time
	session  time.Duration // the session timeout of the processes
	watching *framework.Client
	all      []*load.Process

	strikes  int
	grants   int
	serving  time.Duration // the longest time after a cut until all members served again
	recovery time.Duration // and until all were granted again
}

// cutTime returns the time that an environment variable sets.
func cutTime(t *testing.T, variable string, otherwise time.Duration) time.Duration {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%s: %v", variable, text, err)
	}
	return d
}

// cutSeed returns the seed of the faults, and prints it.
func cutSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ZKR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ZKR_SEED=%d", seed)
	return seed
}

// newCutting starts members and processes on a network.
func newCutting(t *testing.T, network cutnet.Network, proof string) *cutting {
	c := &cutting{
		t: t, net: network, session: cutTime(t, "ZKR_CUTS_SESSION", load.Session), rnd: rand.New(rand.NewPCG(cutSeed(t), 0)),
		dir: t.TempDir(), path: "/suite/cut", began: time.Now(),
		// A tick of 100 ms: after 2.5 s of silence a member leaves its leader.
		// By default, members that look for a leader wait for up to a minute
		// before they ask each other again.
		ens: apache.Start(t, cutMembers, apache.WithNetwork(network), apache.WithTick(100*time.Millisecond),
			apache.WithProperty("zookeeper.fastleader.maxNotificationInterval", "2000")),
	}
	c.log("all members serve")
	c.watching = c.connect(c.ens.Servers())
	ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
	defer cancel()
	if err := c.watching.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	for _, lock := range cutLocks {
		if _, err := c.watching.Create(t.Context(), load.Resource(c.path+"/"+lock.name), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for node := cutMembers; node < cutNodes; node++ {
		enter := func(cmd *exec.Cmd) error { return network.Enter(node, cmd) }
		c.all = append(c.all, load.StartWith(t, enter, "cut", c.serversSeenBy(node), c.dir, c.path, proof, c.session.String()))
	}
	return c
}

// connect returns a client of this process.
func (c *cutting) connect(servers string) *framework.Client {
	client, err := framework.New(servers, framework.WithSessionTimeout(6*time.Second))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() }) // the servers may be gone
	return client
}

// serversSeenBy returns the addresses at which a node reaches the members.
func (c *cutting) serversSeenBy(node int) string {
	servers := strings.Split(c.ens.Servers(), ",")
	for member, address := range servers {
		var err error
		if servers[member], err = c.net.Address(node, member, address); err != nil {
			c.t.Fatal(err)
		}
	}
	return strings.Join(servers, ",")
}

// part is how long the network fails before all is looked at.
const part = 30 * time.Second

// run lets the network fail in one way, and judges what the processes did.
func (c *cutting) run(strike func(*cutting, time.Duration)) {
	duration := cutTime(c.t, "ZKR_CUTS", part)
	for spent := time.Duration(0); spent < duration && !c.t.Failed(); spent += part {
		c.work(strike, min(part, duration-spent))
	}
	total := c.ended()
	ops, parts := c.judge()
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	c.log("%d cuts, %d packets lost or held; %d grants, %d of them lost; %d waits ended since the session could not be proven; longest without a grant %v, longest wait %v",
		c.strikes, c.net.Lost(), c.grants, total.Losses, total.Unproven, round(c.longestIdle()), round(total.Wait))
	c.log("%d guarded writes, %d refused, %d of unknown outcome, %d of all these after a loss", total.Writes, total.Refused, total.Unknown, total.Late)
	c.log("after a cut all members serve within %v, all are granted again within %v; longest stall of a process %v",
		round(c.serving), round(c.recovery), round(total.Stall))
	c.log("members that have found their trees different from the leader's: %v", c.mismatches())
	c.log("%d operations in %d histories judged by porcupine", ops, parts)
}

// work lets all work while the network fails, and then rest.
func (c *cutting) work(strike func(*cutting, time.Duration), d time.Duration) {
	for _, p := range c.all {
		fmt.Fprintln(p.Say, "work")
	}
	c.servedSince(c.sizes()) // so that each cut finds all at work
	c.log("all have been granted")
	until := time.Now().Add(d)
	for first := true; time.Now().Before(until); first = false {
		long := c.session + time.Second + c.upTo(c.session/2) // sessions end
		if !first && (c.rnd.IntN(3) > 0 || time.Until(until) < long) {
			long = 100*time.Millisecond + c.upTo(c.session*2/3)
		}
		c.strikes++
		strike(c, long.Round(time.Millisecond))
		c.heal()
		time.Sleep(c.upTo(time.Second))
	}
	healed, before := time.Now(), c.sizes()
	ctx, cancel := context.WithTimeout(c.t.Context(), load.Patience)
	defer cancel()
	if err := c.ens.WaitServing(ctx); err != nil {
		c.t.Fatal(err)
	}
	c.serving = max(c.serving, time.Since(healed))
	c.servedSince(before)
	c.recovery = max(c.recovery, time.Since(healed))
	for _, p := range c.all {
		fmt.Fprintln(p.Say, "rest")
	}
	for _, p := range c.all {
		p.Expect(c.t, "rests")
	}
	c.quiet()
}

// quiet checks that nothing is left, and records that in the ledgers.
func (c *cutting) quiet() {
	for _, lock := range cutLocks {
		for _, dir := range lock.dirs {
			c.eventually("nothing is left at "+dir, func() bool {
				names, err := c.children(c.watching, dir)
				return err == nil && len(names) == 0
			})
		}
		_, stat, err := c.watching.Get(c.t.Context(), load.Resource(c.path+"/"+lock.name))
		if err != nil {
			c.t.Fatal(err)
		}
		if err := c.ledger(lock.name).Append("quiet %d", stat.Version); err != nil {
			c.t.Fatal(err)
		}
	}
	c.noWatches("/_c_") // on contenders' znodes, which are all gone
}

// noWatches waits until no member has a watch on a path that contains a text.
func (c *cutting) noWatches(text string) {
	for _, address := range strings.Split(c.ens.Servers(), ",") {
		bubble.AwaitTrue(c.t, fmt.Sprintf("%s has no watches on %s", address, text), func() bool {
			watches, err := ask(address, "wchp")
			return err == nil && !strings.Contains(watches, text)
		})
	}
}

func (c *cutting) ledger(name string) load.Ledger { return load.Ledger(filepath.Join(c.dir, name)) }

// sizes returns how long each ledger is.
func (c *cutting) sizes() map[string]int {
	sizes := map[string]int{}
	for _, lock := range cutLocks {
		text, err := c.ledger(lock.name).Read()
		if err != nil {
			c.t.Fatal(err)
		}
		sizes[lock.name] = len(text)
	}
	return sizes
}

// servedSince waits until each goroutine of each process has been granted each
// of its locks again: no wakeup was lost.
func (c *cutting) servedSince(before map[string]int) {
	for _, lock := range cutLocks {
		for _, p := range c.all {
			for _, worker := range lock.workers {
				who := fmt.Sprintf("%d.%s", p.Pid, worker)
				c.eventually(who+" is granted "+lock.name+" again", func() bool {
					c.alive(p)
					text, err := c.ledger(lock.name).Read()
					return err == nil && load.SectionBegins(string(text[before[lock.name]:]), who)
				})
			}
		}
	}
}

// grantedSince reports whether a process has been granted anything.
func (c *cutting) grantedSince(before map[string]int, process int) bool {
	for _, lock := range cutLocks {
		text, err := c.ledger(lock.name).Read()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, worker := range lock.workers {
			if load.SectionBegins(string(text[before[lock.name]:]), fmt.Sprintf("%d.%s", process, worker)) {
				return true
			}
		}
	}
	return false
}

// upTo draws a time.
func (c *cutting) upTo(d time.Duration) time.Duration { return time.Duration(c.rnd.Int64N(int64(d))) }

func (c *cutting) log(format string, args ...any) {
	c.t.Logf("%8v: %s", time.Since(c.began).Round(time.Millisecond), fmt.Sprintf(format, args...))
}

// ended ends the processes and returns their figures.
func (c *cutting) ended() *load.Figures {
	total := &load.Figures{}
	for _, p := range c.all {
		p.In.Close()
	}
	for _, p := range c.all {
		var f load.Figures
		if err := json.Unmarshal([]byte(p.Expect(c.t, "figures")), &f); err != nil {
			c.t.Fatal(err)
		}
		p.Expect(c.t, "done")
		total.Add(&f)
	}
	c.noWatches(c.path)
	return total
}

// longestIdle returns the longest time in which nothing was granted to anybody,
// while there was work.
func (c *cutting) longestIdle() (idle time.Duration) {
	var all []int64 // times of grants, in milliseconds
	parts := map[int64]bool{}
	for _, lock := range cutLocks {
		text, err := c.ledger(lock.name).Read()
		if err != nil {
			c.t.Fatal(err)
		}
		var last int64
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			switch words[0] {
			case "at":
				if last, err = strconv.ParseInt(words[1], 10, 64); err != nil {
					c.t.Fatal(err)
				}
				all = append(all, last)
			case "quiet":
				parts[last] = true
			}
		}
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if gap := time.Duration(all[i]-all[i-1]) * time.Millisecond; !parts[all[i-1]] {
			idle = max(idle, gap)
		}
	}
	return idle
}

// judge judges the ledgers, and their histories.
func (c *cutting) judge() (ops, parts int) {
	for _, lock := range cutLocks {
		l := c.ledger(lock.name)
		limit := 0
		if lock.name == "semaphore" {
			limit = cutPermits
		}
		l.Acceptable(c.t, limit, 2*cutProcesses) // before the first cut, and after the last
		c.grants += l.Grants(c.t)
		text, err := l.Read()
		if err != nil {
			c.t.Fatal(err)
		}
		n, m, err := load.JudgeHistory(lock.name, string(text), limit, os.Getenv("ZKR_PICTURES"))
		if err != nil {
			judge.Errorf(c.t, "%v", err)
		}
		ops, parts = ops+n, parts+m
	}
	return ops, parts
}
