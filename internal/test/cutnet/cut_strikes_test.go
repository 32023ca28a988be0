//go:build unix

package cutnet_test

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/cutnet"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
)

// silence is a link that says nothing, and refusal one that breaks connections.
var (
	silence = cutnet.Link{Cut: true}
	refusal = cutnet.Link{Refused: true}
)

// nodes returns the nodes from one up to another.
func nodes(from, to int) (all []int) {
	for node := from; node < to; node++ {
		all = append(all, node)
	}
	return all
}

var (
	everybody = nodes(0, cutNodes)
	members   = nodes(0, cutMembers)
	processes = nodes(cutMembers, cutNodes)
)

// others returns the nodes that are not among some.
func others(some ...int) []int {
	return slices.DeleteFunc(slices.Clone(everybody), func(node int) bool { return slices.Contains(some, node) })
}

// set changes what nodes say to others.
func (c *cutting) set(from, to []int, l cutnet.Link) {
	for _, a := range from {
		for _, b := range to {
			if a != b {
				c.net.Set(a, b, l)
			}
		}
	}
}

// between changes both directions.
func (c *cutting) between(a, b []int, l cutnet.Link) {
	c.set(a, b, l)
	c.set(b, a, l)
}

func (c *cutting) heal() { c.set(everybody, everybody, cutnet.Link{}) }

// pick returns one of them.
func (c *cutting) pick(of []int) int { return of[c.rnd.IntN(len(of))] }

// some returns at least one of them, and not all.
func (c *cutting) some(of []int) []int {
	var picked []int
	for _, i := range c.rnd.Perm(len(of))[:1+c.rnd.IntN(len(of)-1)] {
		picked = append(picked, of[i])
	}
	slices.Sort(picked)
	return picked
}

// partition makes two parts that hear nothing of each other.
func (c *cutting) partition(d time.Duration) {
	side := c.some(everybody)
	c.log("%v hear nothing of the others for %v, nor are they heard", side, d)
	c.between(side, others(side...), silence)
	time.Sleep(d)
}

// mute loses what one node says.
func (c *cutting) mute(d time.Duration) {
	one := c.pick(everybody)
	c.log("what %d says is lost for %v", one, d)
	c.set([]int{one}, everybody, silence)
	time.Sleep(d)
}

// deafen loses what one node is told.
func (c *cutting) deafen(d time.Duration) {
	one := c.pick(everybody)
	c.log("what %d is told is lost for %v", one, d)
	c.set(everybody, []int{one}, silence)
	time.Sleep(d)
}

// slowly returns a link with delays and little room.
func (c *cutting) slowly() cutnet.Link {
	return cutnet.Link{Delay: c.upTo(300 * time.Millisecond), Jitter: 1 + c.upTo(100*time.Millisecond), Rate: 10_000 + c.rnd.IntN(50_000)}
}

// slow makes each direction of each link slow.
func (c *cutting) slow(d time.Duration) {
	c.log("all is slow for %v", d)
	for _, a := range everybody {
		for _, b := range others(a) {
			c.net.Set(a, b, c.slowly())
		}
	}
	time.Sleep(d)
}

// lossy makes all links lose packets.
func (c *cutting) lossy(d time.Duration) {
	share := 0.02 + 0.3*c.rnd.Float64()
	c.log("of all packets %.0f%% are lost for %v", 100*share, d)
	c.set(everybody, everybody, cutnet.Link{Loss: share})
	time.Sleep(d)
}

// leaderAlone cuts the leader from the other members. All processes reach it.
func (c *cutting) leaderAlone(d time.Duration) {
	one := load.Leading(c.t, c.ens)
	c.log("the leader, %d, and the other members hear nothing of each other for %v", one, d)
	c.between([]int{one}, members, silence)
	time.Sleep(d)
}

// minorityWithHolder leaves one process nothing but one follower. When it has
// been granted something there, the two are cut from all others.
func (c *cutting) minorityWithHolder(d time.Duration) {
	leader, process := load.Leading(c.t, c.ens), c.pick(processes)
	follower := (leader + 1 + c.rnd.IntN(cutMembers-1)) % cutMembers
	c.between([]int{process}, others(process, follower), silence)
	before := c.sizes()
	who := c.all[process-cutMembers].Pid
	bubble.AwaitTrue(c.t, "the process is granted something at the follower", func() bool { return c.grantedSince(before, who) })
	c.log("%d and %d, a process and its follower, are alone for %v", process, follower, d)
	pair := []int{process, follower}
	c.between(pair, others(pair...), silence)
	time.Sleep(d)
}

// flap cuts some directions again and again. In half of the cases their
// connections break.
func (c *cutting) flap(d time.Duration) {
	const longest = 800 * time.Millisecond
	how, link := "silently", silence
	if c.rnd.IntN(2) == 0 {
		how, link = "and break connections", refusal
	}
	c.log("some links flap %s for %v", how, d)
	for until := time.Now().Add(d); time.Now().Before(until); {
		for _, a := range everybody {
			for _, b := range others(a) {
				if c.rnd.IntN(3) == 0 {
					c.net.Set(a, b, link)
				}
			}
		}
		time.Sleep(c.upTo(longest))
		c.heal()
		time.Sleep(c.upTo(longest))
	}
}

// clientsOnly makes the links of one process fail in any way.
func (c *cutting) clientsOnly(d time.Duration) {
	one, at := c.pick(processes), members
	if c.rnd.IntN(3) == 0 {
		at = c.some(members)
	}
	switch c.rnd.IntN(6) {
	case 0:
		c.log("%d is cut from the members %v for %v", one, at, d)
		c.between([]int{one}, at, silence)
	case 1:
		c.log("what %d says to the members %v is lost for %v", one, at, d)
		c.set([]int{one}, at, silence)
	case 2:
		c.log("what the members %v say to %d is lost for %v", at, one, d)
		c.set(at, []int{one}, silence)
	case 3:
		c.log("what %d says to the members %v is refused for %v", one, at, d)
		c.set([]int{one}, at, refusal)
	case 4:
		link := c.slowly()
		c.log("between %d and the members %v it is slow for %v: %+v", one, at, d, link)
		c.between([]int{one}, at, link)
	case 5:
		link := cutnet.Link{Loss: 0.5 * c.rnd.Float64()}
		c.log("between %d and the members %v packets are lost for %v: %+v", one, at, d, link)
		c.between([]int{one}, at, link)
	}
	time.Sleep(d)
}
