package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// named is the name service of one client, and the network behind the addresses
// that it knows.
type named struct {
	nameserver.Server
	world  *world
	client int
	net    *testutil.ClientNet

	mu    sync.Mutex // guards what follows
	hosts []string   // by member: its address
	taken []bool     // by another ensemble
	moves int        // of members, so far
	fails []int      // by member: faults of its name and their ends, so far
}

// elsewhereName is the name of another ensemble, and elsewhereHost its address.
const elsewhereName, elsewhereHost = "elsewhere.example.", "10.1.0.1"

// nameOf returns the name of a member.
func nameOf(member int) string { return fmt.Sprintf("zk%d.example.", member) }

// names gives each client a name service, and returns the servers by name. It
// starts the ensemble that takes addresses, and creates the clients' chroots in
// both, which they know from their first connection on.
func (w *world) names(ctx context.Context) (servers string, err error) {
	if w.plan.Views != nil {
		if err := bubble.MakeBase(ctx, w.ens); err != nil {
			return "", err
		}
	}
	time.Sleep(time.Second) // two ensembles are not made at one time
	if w.elsewhere, err = testutil.New(testutil.InMemory(), testutil.WithMembers(3), testutil.WithTick(w.plan.Tick)); err != nil {
		return "", err
	}
	if err := bubble.MakeBase(ctx, w.elsewhere); err != nil {
		return "", err
	}
	leader := w.elsewhere.Leader()
	if err := w.elsewhere.Stop(leader); err != nil {
		return "", err
	}
	time.Sleep(time.Second)
	if err := w.elsewhere.Restart(leader); err != nil {
		return "", err
	}
	// After an election, and a session, it has later transactions than the
	// clients' ensemble: it seems not to lag.
	if err := bubble.MakeBase(ctx, w.elsewhere); !errors.Is(err, zk.ErrNodeExists) {
		return "", err
	}
	for i := range w.plan.Workers {
		n := &named{world: w, client: i, net: w.ens.ClientNet(fmt.Sprint(i)), hosts: make([]string, w.plan.Members), taken: make([]bool, w.plan.Members), fails: make([]int, w.plan.Members)}
		n.heal()
		w.named = append(w.named, n)
	}
	var all []string
	for i := range w.plan.Members {
		all = append(all, nameOf(i)+":2181")
	}
	return strings.Join(all, ","), nil
}

// heal ends all faults.
func (n *named) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.taken)
	n.Is(elsewhereName, elsewhereHost)
	n.Answer(elsewhereName, nameserver.Addresses, 0)
	for i := range n.hosts {
		n.fails[i]++
		n.hosts[i] = fmt.Sprint("10.0.0.", i+1)
		n.Is(nameOf(i), n.hosts[i])
		n.Answer(nameOf(i), nameserver.Addresses, 0)
	}
}

func (n *named) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	member := slices.Index(n.hosts, host)
	taken := host == elsewhereHost || member >= 0 && n.taken[member]
	n.mu.Unlock()
	w := n.world
	switch {
	case taken:
		return w.elsewhere.ClientNet("all").Dial(network, strings.Split(w.elsewhere.Servers(), ",")[0], timeout)
	case member < 0:
		return nil, errors.New("nobody has this address")
	}
	conn, err := n.net.Dial(network, strings.Split(w.ens.Servers(), ",")[member], timeout)
	if err != nil || !w.plan.Staged {
		return conn, err
	}
	return w.tap(n.client, conn), nil
}

// misname does what a fault of the name service says, and disconnects the
// client, which then looks up names.
func (w *world) misname(f Fault) (heal func(), done bool) {
	member := f.Member
	if member == Near {
		member = w.near(f.Client)
	}
	if !w.plan.Named || member != Every && (member < 0 || member >= w.plan.Members) {
		return nil, false
	}
	n := w.named[f.Client]
	for i := range w.plan.Members {
		if member == Every || member == i {
			n.fail(f, i)
		}
	}
	n.net.Drop()
	return n.heal, true
}

func (n *named) fail(f Fault, member int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answer, delay := nameserver.Addresses, time.Duration(0)
	switch f.What {
	case NamesSlow:
		delay = f.By
	case NamesSilent:
		answer = nameserver.Silence
	case NamesFail:
		answer = nameserver.Failure
	case NamesGone:
		answer = nameserver.NoName
	case NamesMove:
		n.moves++
		n.hosts[member] = fmt.Sprintf("10.0.%d.%d", n.moves, member+1)
		n.Is(nameOf(member), n.hosts[member])
	case AddressTaken:
		answer = nameserver.Silence
	}
	n.fails[member]++
	// What the name server says is true.
	n.taken[member] = n.taken[member] && answer != nameserver.Addresses
	n.Answer(nameOf(member), answer, delay)
	if f.What == AddressTaken {
		now := n.fails[member]
		time.AfterFunc(n.world.plan.Timeout/2, func() { n.take(member, now) })
	}
}

// root gives each client a chroot, sometimes.
func (d *draw) root() {
	if d.one(1, 2) && d.Values == nil { // values are drawn for views
		d.Views = nil
		for range d.Workers {
			d.Views = append(d.Views, pick(d, bubble.Views[1], bubble.Views[3]))
		}
	}
}

// rooted reports whether each client has a chroot.
func (p *Plan) rooted() bool {
	return p.Views != nil && !slices.ContainsFunc(p.Views, func(v bubble.View) bool { return v.Chroot == "" })
}

// take gives a member's address to another ensemble, unless there was another
// fault since. Before that the latest answer of the name server may be one that
// clients trust: it was true a moment ago.
func (n *named) take(member, fails int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails[member] == fails {
		n.taken[member] = true
		n.net.Drop()
	}
}

// OfNames reports whether a fault is one of the name service.
func (f What) OfNames() bool {
	return slices.Contains([]What{NamesSilent, NamesFail, NamesGone, NamesSlow, NamesMove, AddressTaken}, f)
}

// losesNone reports whether nothing fails but the name service, and each client
// knows an address of a member all the time: then no lease may be lost.
func (p *Plan) losesNone() bool {
	slow := p.Latency > 3*time.Millisecond || p.Reports > 0 || p.Servers != nil || p.Hop || p.Rates != nil || p.HasMargin
	if len(p.Faults) == 0 || p.Policy != framework.ErrorPolicySession || p.MaxHold > 0 || slow {
		return false
	}
	unknown := 0 // faults that leave a member without an address that is known
	for _, f := range p.Faults {
		switch {
		case !f.What.OfNames():
			return false
		case f.What == NamesMove: // a name server that is silent meanwhile does not tell
			unknown += len(p.Faults) - 1
		case f.What == NamesGone || f.What == AddressTaken:
			unknown++
			if f.Member == Every {
				return false
			}
		}
	}
	return unknown == 0 || unknown == 1 && p.Members > 1
}

// names draws whether clients know the members by names, and faults of the name
// service, among others or alone, where no lease may be lost as a rule. It
// draws last, for the reason that views has.
func (d *draw) names() {
	if d.Named = d.one(1, 4); !d.Named || d.Scenario.quiet() {
		return
	}
	d.root()
	kinds, member := []What{NamesSilent, NamesFail, NamesSlow, NamesGone, NamesMove}, d.IntN(d.Members)
	if d.rooted() { // as in lists
		kinds = append(kinds, AddressTaken)
	}
	if d.one(1, 2) {
		d.Faults, d.Policy, d.MaxHold = nil, framework.ErrorPolicySession, 0
		d.Latency, d.Reports, d.Servers, d.Hop, d.Rates, d.HasMargin = time.Millisecond, 0, nil, false, nil, false
		kinds = pick(d, kinds[:3], kinds)
		for _, client := range d.Values {
			for i := range client {
				client[i].MaxHold = 0
			}
		}
		for _, client := range d.Workers { // there are leases to lose
			s := &client[0][0]
			s.Try, s.Cancel, s.Nth, s.Work = false, 0, 0, 2*d.Timeout+d.upTo(d.Timeout)
		}
	}
	for range 1 + d.IntN(4) {
		d.Faults = append(d.Faults, Fault{
			At: When{Time: d.upTo(2 * d.Timeout)}, For: d.upTo(2 * d.Timeout), What: pick(d, kinds...),
			Client: d.IntN(len(d.Workers)), Member: pick(d, Near, Every, member), By: d.upTo(d.Timeout / 2),
		})
	}
}
