// Command shards shows members that share shards. A leader writes down which
// member works on which shard: each has as many as any other, or one more. When
// a member comes or goes, the leader moves only as many shards as it must, and
// all others are worked on meanwhile. The shards of a member that has died are
// worked on again soon after its session has expired.
//
// The assignment keeps no two members from one shard: one member reads it later
// than another. So a member works on a shard only while it has the shard's
// lock, and passes on the lock's token. A member that was stopped for a while
// may still write late: what it writes to refuses a token that is over.
//
// Kazoo's SetPartitioner has the same purpose. But when a member comes or goes,
// all members stop, and work again when nobody has come or gone for 30 s. Its
// locks have no tokens.
//
//	go run ./examples/shards                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/shards        # on a real one
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	shards         = 12
	basePath       = "/examples/shards"
	assignmentPath = basePath + "/assignment"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	servers := os.Getenv("ZKR_SERVERS")
	if servers == "" {
		ens, err := testutil.New(testutil.WithMembers(3))
		if err != nil {
			log.Fatal(err)
		}
		defer ens.Close()
		servers = ens.Servers()
	}
	if err := run(ctx, servers, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run starts three members, and ends one of them.
func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	s := &store{}
	first, end := context.WithCancel(ctx)
	defer end()
	for id, ctx := range map[string]context.Context{"a": first, "b": ctx, "c": ctx} {
		client, err := framework.New(servers)
		if err != nil {
			return err
		}
		all.Go(func() {
			defer client.Close()
			if err := join(ctx, client, id, s.workOf(id)); ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	for _, want := range []map[string]int{{"a": 4, "b": 4, "c": 4}, {"b": 6, "c": 6}} {
		for !maps.Equal(s.shares(), want) {
			if pause(ctx, 10*time.Millisecond); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		fmt.Fprintln(out, "shards of each member:", want)
		end()
	}
	return nil
}

// member works on the shards that are assigned to it, and may lead.
type member struct {
	id     string
	client *framework.Client
	group  *presence.Group
	locks  *locks.Keyed
	work   work
}

// work is what a member does with a shard, until ctx ends or it fails. It is
// called again then, if the shard is still the member's.
type work func(ctx context.Context, shard int, token recipes.Token) error

// join is one member. It returns when ctx ends, or for a reason that no further
// try would mend: see leader.Election.Run. Then close the client: the member is
// in the group until its session ends.
func join(ctx context.Context, client *framework.Client, id string, work work) error {
	group, err1 := presence.NewGroup(client, basePath+"/members")
	election, err2 := leader.New(client, basePath+"/leader", leader.WithID(id))
	assigned, err3 := cache.New(client, assignmentPath, cache.WithDepth(0))
	keyed, err4 := locks.NewKeyed(client, basePath+"/locks")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if _, err := group.Join(ctx, id, nil); err != nil { // waits while another process has the id
		return err
	}
	m := &member{id, client, group, keyed, work}
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { m.follow(ctx, assigned) })
	return election.Run(ctx, m.lead)
}

// lead writes the assignment whenever the members change. After an error it is
// called again, in the next term of this member.
func (m *member) lead(ctx context.Context, term *recipes.Lease) error {
	if err := m.client.MakePersistentPath(ctx, assignmentPath); err != nil {
		return err
	}
	roster := m.group.Follow()
	defer roster.Close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer roster.Listen(func(all []presence.Member, _ cache.Status) {
		if err := m.assign(ctx, term, all); err != nil {
			fail(err)
		}
	})()
	<-ctx.Done()
	return context.Cause(ctx)
}

// assign writes the assignment, in a transaction that is refused once another
// member leads. What it reads is the latest: the reads of a session never go
// back, and this one saw that the znode of the leader before was gone.
func (m *member) assign(ctx context.Context, term *recipes.Lease, all []presence.Member) error {
	data, stat, err := m.client.Get(ctx, assignmentPath)
	if err != nil {
		return err
	}
	var ids []string
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	old, _ := decode(data)                           // what cannot be read is assigned again
	data, _ = json.Marshal(assign(old, ids, shards)) // which cannot fail
	_, err = term.Multi(ctx, &zk.SetDataRequest{Path: assignmentPath, Data: data, Version: stat.Version})
	return err
}

func decode(data []byte) (a assignment, err error) {
	err = json.Unmarshal(data, &a)
	return a, err
}

// follow works on the shards of this member until ctx ends. While it cannot
// read the assignment, it goes on with the last one.
func (m *member) follow(ctx context.Context, assigned *cache.Cache) {
	assigned.Start()
	defer assigned.Close()
	changes := make(chan assignment)
	defer cache.NewValue(assigned, assignmentPath, decode).Listen(func(now assignment, _ error) {
		select {
		case changes <- now:
		case <-ctx.Done():
		}
	})()
	var all sync.WaitGroup
	defer all.Wait()
	stops := make(map[int]context.CancelFunc) // of the shards that are this member's
	for {
		select {
		case now := <-changes:
			for shard, id := range now {
				switch stop := stops[shard]; {
				case id == m.id && stop == nil:
					ctx, stop := context.WithCancel(ctx)
					stops[shard] = stop
					all.Go(func() { m.hold(ctx, shard) })
				case id != m.id && stop != nil:
					stop()
					delete(stops, shard)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// hold works on a shard while it has the shard's lock, until ctx ends. It may
// have to wait for a member that has not read yet that the shard has moved.
func (m *member) hold(ctx context.Context, shard int) {
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		err := recipes.Do(ctx, m.locks.Key(fmt.Sprint(shard)), func(ctx context.Context, lease *recipes.Lease) error {
			return m.work(ctx, shard, lease.Token())
		})
		if ctx.Err() == nil { // the work has failed, the lock was lost, or no server answers
			log.Printf("%s: shard %d: %v", m.id, shard, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// store is what the members write to. It refuses a token that is less than one
// that it has seen.
type store struct {
	mu      sync.Mutex // guards what follows
	tokens  [shards]recipes.Token
	members [shards]string // that have written last
}

// workOf returns the work of a member: to write to the store again and again.
func (s *store) workOf(member string) work {
	return func(ctx context.Context, shard int, token recipes.Token) error {
		for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
			if err := s.write(member, shard, token); err != nil {
				return err
			}
		}
		return nil
	}
}

func (s *store) write(member string, shard int, token recipes.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token.Compare(s.tokens[shard]) < 0 {
		return fmt.Errorf("store: token %s of %s is over", token, member)
	}
	s.tokens[shard], s.members[shard] = token, member
	return nil
}

// shares returns how many shards each member has written to last.
func (s *store) shares() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	shares := make(map[string]int)
	for _, id := range s.members {
		shares[id]++
	}
	return shares
}
