package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
)

// Value is how a goroutine uses the locks of its client: a view, and options.
// All values of a client and a path are one lock.
type Value struct {
	Below    string // a namespace of the client's view; empty: the view itself
	MaxHold  time.Duration
	Handoffs int // negative: the default
	Linger   time.Duration
	Async    bool
	Znode    Znode
}

// Znode says in what the znodes of a value differ from those of others. Values
// that are in use at the same time must agree in it.
type Znode int

// What a value's znodes are made with.
const (
	AsOthers Znode = iota
	OtherData
	OtherACL
)

// below are the namespaces of a view that lead to the same locks.
var below = map[bubble.View][]string{
	bubble.Views[0]:   {"", "team", "team/blue"},
	{Chroot: "/team"}: {"", "blue"},
}

// values draws whether the goroutines of a client have values that differ, and
// what only shows then. It draws last, for the reason that views has.
func (d *draw) values() {
	if d.Recipe.watches() || d.Recipe.counts() || d.Scenario == Rush || !d.one(1, 3) {
		return
	}
	if d.Views == nil && d.one(1, 2) {
		d.Views = make([]bubble.View, len(d.Workers))
	}
	disagree := d.one(1, 8)
	for c, client := range d.Workers {
		if d.Views != nil && d.one(3, 4) {
			d.Views[c] = pick(d, bubble.Views[0], bubble.View{Chroot: "/team"})
		}
		var values []Value
		for range client {
			v := d.value(Value{MaxHold: d.MaxHold, Handoffs: d.Handoffs, Linger: d.Linger, Async: d.Async})
			if all := below[d.view(c)]; d.Views != nil && all != nil {
				v.Below = pick(d, all...)
			}
			if disagree {
				v.Znode = pick(d, AsOthers, OtherData, OtherACL)
			}
			values = append(values, v)
		}
		d.Values = append(d.Values, values)
	}
	d.Crossed = d.one(1, 2)
	d.OneElection = (d.Recipe == Election || d.Recipe == Campaign) && d.one(1, 2)
	for _, client := range d.Workers {
		for _, steps := range client {
			for i := range steps {
				steps[i].Runs = d.OneElection && !d.far() && d.one(1, 3) // a campaign has no end if no lease lasts
			}
		}
	}
}

// value draws the options in which a value differs from v.
func (d *draw) value(v Value) Value {
	if d.one(1, 2) {
		v.Handoffs = pick(d, -1, 0, 1, 2, 16)
	}
	if d.one(1, 2) {
		v.Linger = pick(d, 0, max(time.Millisecond, d.upTo(time.Second)))
	}
	if d.one(1, 2) {
		v.Async = !v.Async
	}
	if !d.Scenario.quiet() && d.one(1, 4) {
		v.MaxHold = max(time.Millisecond, d.upTo(d.Timeout))
	}
	return v
}

// valueOf returns the value of a goroutine, or that of the one which comes so
// many later.
func (p *Plan) valueOf(id who, later int) Value {
	if p.OneElection {
		id.goroutine, later = 0, 0
	}
	if p.Values == nil {
		return Value{MaxHold: p.MaxHold, Handoffs: p.Handoffs, Linger: p.Linger, Async: p.Async}
	}
	all := p.Values[id.client]
	return all[(id.goroutine+later)%len(all)]
}

// allValues returns the values of a client.
func (p *Plan) allValues(client int) (all []Value) {
	for g := range p.Workers[client] {
		all = append(all, p.valueOf(who{client, g}, 0))
	}
	return all
}

// capped reports whether leases of a client may end by WithMaxHold.
func (p *Plan) capped(client int) bool {
	return slices.ContainsFunc(p.allValues(client), func(v Value) bool { return v.MaxHold > 0 })
}

// asynchronous reports whether releases of a client may not wait.
func (p *Plan) asynchronous(client int) bool {
	return slices.ContainsFunc(p.allValues(client), func(v Value) bool { return v.Async })
}

// mostHandoffs returns how often a client may hand off while another waits.
func (p *Plan) mostHandoffs(client int) (most int) {
	for _, v := range p.allValues(client) {
		if v.Handoffs < 0 {
			v.Handoffs = 16 // the default
		}
		most = max(most, v.Handoffs)
	}
	return most
}

// disagreed reports whether err says that another value in use, of the same
// client, makes other znodes, and whether the plan has such.
func (p *Plan) disagreed(client int, err error) bool {
	all := p.allValues(client)
	return slices.ContainsFunc(all, func(v Value) bool { return v.Znode != all[0].Znode }) && strings.Contains(err.Error(), "different data, ACL or node name")
}

// see gives the worker the client and the paths of a value's view.
func (k *worker) see(v Value) {
	k.client, k.view = k.clients[k.who.client], k.plan.view(k.who.client)
	if v.Below != "" {
		k.client = must(k.client.Namespace(v.Below))
		k.view.Namespace = strings.TrimPrefix(k.view.Namespace+"/"+v.Below, "/")
	}
}

// elects returns the worker's candidate, or that which it shares.
func (k *worker) elects(path string, v Value) *leader.Election {
	id := k.who.String()
	if k.plan.OneElection {
		if e := k.shared[k.who.client]; e != nil {
			return e
		}
		id = fmt.Sprint(k.who.client)
	}
	opts := []leader.Option{leader.WithID(id)}
	if v.Async {
		opts = append(opts, recipes.WithAsyncRelease())
	}
	k.shared[k.who.client] = must(leader.New(k.client, path, opts...))
	return k.shared[k.who.client]
}

// ofLeases returns the options that every lock takes, and ofLocks those that
// all take but a semaphore.
func (v Value) ofLeases() []recipes.LeaseOption {
	all := []recipes.LeaseOption{recipes.WithMaxHold(v.MaxHold)}
	if v.Async {
		all = append(all, recipes.WithAsyncRelease().LeaseOption)
	}
	switch v.Znode {
	case OtherData:
		all = append(all, recipes.WithData([]byte("other")).LeaseOption)
	case OtherACL:
		all = append(all, recipes.WithACL(zk.WorldACL(zk.PermAll)...).LeaseOption)
	}
	return all
}

func (v Value) ofLocks() []recipes.LockOption {
	all := []recipes.LockOption{recipes.WithLinger(v.Linger)}
	if v.Handoffs >= 0 {
		all = append(all, recipes.WithHandoffs(v.Handoffs))
	}
	for _, o := range v.ofLeases() {
		all = append(all, o.LockOption)
	}
	return all
}

// options returns options as those of one constructor.
func options[O, From any](from []From, more ...O) []O {
	for _, o := range from {
		more = append(more, any(o).(O))
	}
	return more
}
