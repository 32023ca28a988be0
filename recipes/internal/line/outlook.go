package line

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// A contender is granted by an event, without another list, if it already
// knows all that the list would say.
//
// A is the set of conflicting znodes ahead in its latest list, which also has
// its own znode. It watches its own znode and those of A on one connection, by
// a new read for each. After the answer for its own znode, that connection
// reports the deletion of each znode of A. At the last deletion:
//
//   - No znode of A is left. Each was in the list, and was deleted later. A new
//     znode with its name cannot have come: see the exceptions.
//   - No other conflicting znode is ahead. A sequential create takes a number
//     greater than all before it in this directory, so nobody joins ahead.
//   - Its own znode still exists, the one of the list: it was created no later
//     than the directory's latest change in that list (pzxid), and was deleted
//     neither before it was read nor since. A server sends events and answers
//     in the order in which it applies changes, and the watch has not fired.
//   - So the directory is the list's: it was not empty in between.
//
// In any other case the contender watches again, and lists. Any event uses up a
// watch of data. So each of these leads to a list: a request to release, which
// writes to the znode of a holder or a waiter; a reconnect; a watch that others
// in this session have armed; a znode that may not be read.
//
// # Exceptions
//
// What could break this, and why it does not:
//
//   - A downgraded read, ours or Apache Curator's, takes the number of its
//     write. The write then leaves, and the read stays ahead of all later
//     writers. So a writer whose latest list has a writer ahead always lists.
//     So does a lock of Kazoo's: the znode ahead may be a write of its
//     read/write lock, and a read in line is ErrLayout. If only readers are
//     ahead of a writer, no such znode can come ahead of it. For a reader
//     behind a writer that read is no conflict.
//   - The last numbers of a directory, which servers repeat, or after which
//     they begin again: Rule.blocker has refused a znode with one of them.
//   - A directory that is deleted and created again, even by one multi: the
//     contender's own znode is deleted with it, and that is an event.
//   - A create of this session that was sent again, or is executed late, joins
//     at the end, as any other.
//   - A child of another layout that its name does not show (Rule.OtherLayout):
//     if a child may be one, the contender lists. A child that joins after the
//     list is found at the next list, as is a child of another known layout.
//   - A semaphore's permits are no line: the first in line takes them by a
//     multi that checks its own znode.
//   - A znode with the name of a contender that somebody creates by hand is
//     seen only by later contenders, as if it were created after a list.
//
// # What is not told
//
// A server sends no event for a znode that the session may no longer read, so
// the contender's own znode may be gone without an event. It is therefore read
// about once a session timeout while the contender waits, and once after the
// grant: immediately if the last read is over half a session timeout ago, else
// after watchDelay. If it is missing then, the lease is lost: see nodeWatch.
//
// A multi may delete the znode ahead and then the contender's own. The first
// event grants, and the second ends the grant, as when somebody removes a
// holder's znode. So it is when somebody ends the session before its timeout,
// while the event that grants is on its way: the end of the connection follows.
//
// # Who hears of what
//
// A contender watches the two contenders directly ahead. Instead of them, a
// writer watches one writer, or up to 16 readers. When the first in line
// leaves, the second is granted, and the third gets the event. The third then
// lists while the second works, unless its latest list has shown these two
// alone. So it is granted by event when the second leaves. In a line without
// readers at most two contenders hear of a deletion.

// outlook is what a contender watches while it waits.
type outlook struct {
	own   *managed.Armed // nil: not watched
	read  time.Time      // when that was read last
	ahead map[string]*managed.Armed
}

// awaited is what a contender waits for.
type awaited struct {
	names []string // of the znodes, from the nearest on
	whole bool     // when the last of them is deleted, nobody is ahead
}

// mostReaders is how many readers a writer watches at the same time. Behind
// more than that it watches the nearest, and lists.
const mostReaders = 16

// awaited returns what own waits for. blocker is the nearest znode that it has
// to wait for.
func (r *Rule) awaited(own, blocker string, children []string) awaited {
	one := awaited{names: []string{blocker}}
	self, _ := layout.Parse(own)
	front := layout.NewFront(self, children, r.Set)
	waits := func(ahead layout.Node) (bool, error) { return r.waits(&self, &ahead) }
	nearest, _ := layout.Parse(blocker)
	most := 2
	if r.mixes() && self.Mode == layout.Exclusive {
		if nearest.Mode == layout.Exclusive {
			return one
		}
		most = mostReaders
	}
	names, all, err := front.Nearest(most, waits)
	if err != nil || len(names) == 0 || names[0] != blocker {
		return one
	}
	onlyReaders := most == mostReaders && all && !slices.ContainsFunc(names, func(name string) bool {
		n, _ := layout.Parse(name)
		return n.Mode == layout.Exclusive
	})
	switch {
	case onlyReaders, len(names) == 1 && most == 2:
		return awaited{names, all}
	case len(names) > 1 && front.AreNearest(names[:2]) && (most == 2 || all):
		return awaited{names[:2], all && most == 2}
	}
	return one
}

// mixes reports whether a contender in line may be a write of a read/write
// lock, which may be downgraded. Kazoo's lock and its write have one name.
func (r *Rule) mixes() bool {
	switch r.Set.Family {
	case layout.CuratorRW, layout.PlainRW, layout.KazooLock:
		return true
	}
	return false
}

// watch watches what c waits for. It keeps the watches that c already has.
func (c *contender) watch(ctx context.Context, a *awaited) error {
	o := &c.outlook
	var paths, names []string
	if o.own == nil || closed.Is(o.own.Changed()) {
		o.endOwn()
		paths, names = append(paths, c.path), append(names, c.name)
	}
	for name, w := range o.ahead {
		if !slices.Contains(a.names, name) || closed.Is(w.Changed()) {
			w.Leave()
			delete(o.ahead, name)
		}
	}
	for _, name := range a.names {
		if o.ahead[name] == nil {
			paths, names = append(paths, child(c.queue.dir, name)), append(names, name)
		}
	}
	if err := c.arm(ctx, paths, names); err != nil {
		return err
	}
	for _, name := range slices.Clone(a.names[1:]) {
		if _, _, err := o.ahead[name].Read(); err != nil && !errors.Is(err, zk.ErrNoNode) { // it may not be read
			a.names = slices.DeleteFunc(a.names, func(n string) bool { return n == name })
			a.whole = false
		}
	}
	czxid, owner, err := o.own.Read()
	a.whole = a.whole && err == nil && czxid <= c.latest && owner == c.sess.ID()
	return nil
}

// arm arms watches of znodes with these names.
func (c *contender) arm(ctx context.Context, paths, names []string) error {
	if len(paths) == 0 {
		return nil
	}
	o, began := &c.outlook, time.Now()
	armed, err := c.sess.Arm(ctx, paths...)
	if err != nil {
		return err
	}
	for i, name := range names {
		if name == c.name {
			o.own, o.read = armed[i], began
			continue
		}
		if o.ahead == nil {
			o.ahead = make(map[string]*managed.Armed, len(names))
		}
		o.ahead[name] = armed[i]
	}
	return nil
}

// outcome says what a contender does after a look at its watches.
type outcome int

const (
	keepWaiting outcome = iota
	listAgain
	nobodyAhead
)

// news returns what to do now, and removes from a the znodes that are gone.
func (c *contender) news(a *awaited) (outcome, error) {
	o := &c.outlook
	before := len(a.names)
	for i := 0; i < len(a.names); {
		w := o.ahead[a.names[i]]
		_, _, err := w.Read()
		switch {
		case err != nil && !errors.Is(err, zk.ErrNoNode) && i == 0:
			return listAgain, err
		case err == nil && !closed.Is(w.Changed()):
			i++
		case !w.GoneBehind(o.own):
			return listAgain, nil
		default:
			a.names = slices.Delete(a.names, i, i+1)
		}
	}
	_, _, err := o.own.Read()
	switch {
	case err == nil && closed.Is(o.own.Changed()), errors.Is(err, zk.ErrNoNode): // behind what it has heard of the others
		return listAgain, nil
	case len(a.names) == before:
		return keepWaiting, nil
	case !a.whole:
		return listAgain, nil
	case len(a.names) > 0:
		return keepWaiting, nil
	}
	return nobodyAhead, nil
}

// look reads c's own znode and the nearest. If an event was missed, that closes
// its channel.
func (c *contender) look(ctx context.Context, nearest string) {
	o := &c.outlook
	if c.sess.AtOnce().Sync(ctx, child(c.queue.dir, nearest)) != nil { // see recheck.Gone
		return
	}
	began := time.Now()
	if o.own.Check(ctx) == nil {
		o.read = began
	}
	_ = o.ahead[nearest].Check(ctx)
}

// changed returns the channels of c's own watch and of the nearest two.
func (o *outlook) changed(names []string) (all [3]<-chan struct{}) {
	if _, _, err := o.own.Read(); err == nil {
		all[0] = o.own.Changed()
	}
	for i, name := range names[:min(len(names), 2)] {
		all[1+i] = o.ahead[name].Changed()
	}
	return all
}

func (o *outlook) endOwn() {
	if o.own != nil {
		o.own.Leave()
		o.own = nil
	}
}

// end ends all watches.
func (o *outlook) end() {
	o.endOwn()
	for _, w := range o.ahead {
		w.Leave()
	}
	o.ahead = nil
}
