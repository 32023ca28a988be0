package bounds_test

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// scene is where a call is made: a client that is connected, and another one
// that stays so.
type scene struct {
	*bubble.World
	c, other *framework.Client
}

// call makes a call, and returns when that has returned.
type call func(ctx context.Context)

// cases prepare each call.
var cases = map[string]func(s scene) call{
	"framework.Client.AwaitSession": func(s scene) call { return of(s.c.AwaitSession) },
	"framework.Client.WaitConnected": func(s scene) call {
		return func(ctx context.Context) {
			for s.c.State() == framework.Connected && ctx.Err() == nil { // it has not noticed yet
				time.Sleep(time.Millisecond)
			}
			_ = s.c.WaitConnected(ctx)
		}
	},
	"framework.Client.SetServers": func(s scene) call {
		return func(ctx context.Context) { _ = s.c.SetServers(ctx, "nobody.example:2181") }
	},
	"framework.Client.Close":    func(s scene) call { return closing(s.c.Close) },
	"framework.Client.Children": func(s scene) call { return func(ctx context.Context) { _, _, _ = s.c.Children(ctx, "/") } },
	"framework.Client.Create":   func(s scene) call { return func(ctx context.Context) { _, _ = s.c.Create(ctx, "/n", nil, 0) } },
	"framework.Client.CreateTTL": func(s scene) call {
		return func(ctx context.Context) { _, _ = s.c.CreateTTL(ctx, "/n", nil, zk.FlagTTL, time.Hour) }
	},
	"framework.Client.Delete": func(s scene) call { return func(ctx context.Context) { _ = s.c.Delete(ctx, "/d", -1) } },
	"framework.Client.DeleteCreated": func(s scene) call {
		return func(ctx context.Context) { _ = s.c.DeleteCreated(ctx, "/d", &zk.Stat{Czxid: 1}) }
	},
	"framework.Client.Exists":             func(s scene) call { return func(ctx context.Context) { _, _, _ = s.c.Exists(ctx, "/d") } },
	"framework.Client.Get":                func(s scene) call { return func(ctx context.Context) { _, _, _ = s.c.Get(ctx, "/d") } },
	"framework.Client.GetACL":             func(s scene) call { return func(ctx context.Context) { _, _, _ = s.c.GetACL(ctx, "/d") } },
	"framework.Client.MakeContainerPath":  func(s scene) call { return func(ctx context.Context) { _ = s.c.MakeContainerPath(ctx, "/a/b/c") } },
	"framework.Client.MakePersistentPath": func(s scene) call { return func(ctx context.Context) { _ = s.c.MakePersistentPath(ctx, "/a/b/c") } },
	"framework.Client.Multi":              func(s scene) call { return func(ctx context.Context) { _, _ = s.c.Multi(ctx, bubble.Set("/d", "x")) } },
	"framework.Client.MultiOnce": func(s scene) call {
		return func(ctx context.Context) { _, _ = s.c.MultiOnce(ctx, "/m", nil, bubble.Set("/d", "x")) }
	},
	"framework.Client.ReadAll": func(s scene) call {
		return func(ctx context.Context) { _, _ = s.c.ReadAll(ctx, framework.Read{Path: "/d"}) }
	},
	"framework.Client.Set": func(s scene) call { return func(ctx context.Context) { _, _ = s.c.Set(ctx, "/d", nil, -1) } },
	"framework.Client.SetACL": func(s scene) call {
		return func(ctx context.Context) { _, _ = s.c.SetACL(ctx, "/d", zk.WorldACL(zk.PermAll), -1) }
	},
	"framework.Client.Sync":       func(s scene) call { return func(ctx context.Context) { _ = s.c.Sync(ctx, "/d") } },
	"framework.Client.DeleteTree": func(s scene) call { return func(ctx context.Context) { _, _ = s.c.DeleteTree(ctx, "/d") } },
	"framework.Client.Put":        func(s scene) call { return func(ctx context.Context) { _, _ = s.c.Put(ctx, "/d", nil) } },
	"framework.Client.Update":     func(s scene) call { return func(ctx context.Context) { _, _ = s.c.Update(ctx, "/d", same) } },
	"framework.Client.UpdateOnce": func(s scene) call {
		return func(ctx context.Context) { _, _ = s.c.UpdateOnce(ctx, "/d", "/m", same) }
	},
	"framework.Client.WatchChildren": func(s scene) call { return func(ctx context.Context) { _, _ = s.c.WatchChildren(ctx, "/d") } },
	"framework.Client.WatchData":     func(s scene) call { return func(ctx context.Context) { _, _ = s.c.WatchData(ctx, "/d") } },

	"framework.Session.Children":         inSession(func(ctx context.Context, s *framework.Session) { _, _, _ = s.Children(ctx, "/") }),
	"framework.Session.ChildrenAndWatch": inSession(func(ctx context.Context, s *framework.Session) { _, _, _, _ = s.ChildrenAndWatch(ctx, "/") }),
	"framework.Session.Claim":            inSession(func(ctx context.Context, s *framework.Session) { _, _ = s.Claim(ctx, func(error) {}) }),
	"framework.Session.Create":           inSession(func(ctx context.Context, s *framework.Session) { _, _ = s.Create(ctx, "/n", nil, zk.FlagEphemeral) }),
	"framework.Session.CreateAllProtected": inSession(func(ctx context.Context, s *framework.Session) {
		_, _, _ = s.CreateAllProtected(ctx, framework.ProtectedBatch{Dir: "/d", Name: "x-", N: 2, Flags: zk.FlagEphemeral | zk.FlagSequence})
	}),
	"framework.Session.CreateProtected": inSession(func(ctx context.Context, s *framework.Session) {
		_, _ = s.CreateProtected(ctx, "/d", "x-", nil, zk.FlagEphemeral|zk.FlagSequence)
	}),
	"framework.Session.Delete":             inSession(func(ctx context.Context, s *framework.Session) { _ = s.Delete(ctx, "/d", -1) }),
	"framework.Session.DeleteCreated":      inSession(func(ctx context.Context, s *framework.Session) { _ = s.DeleteCreated(ctx, "/d", &zk.Stat{Czxid: 1}) }),
	"framework.Session.Exists":             inSession(func(ctx context.Context, s *framework.Session) { _, _, _ = s.Exists(ctx, "/d") }),
	"framework.Session.Get":                inSession(func(ctx context.Context, s *framework.Session) { _, _, _ = s.Get(ctx, "/d") }),
	"framework.Session.GetAndWatch":        inSession(func(ctx context.Context, s *framework.Session) { _, _, _, _ = s.GetAndWatch(ctx, "/d") }),
	"framework.Session.MakeContainerPath":  inSession(func(ctx context.Context, s *framework.Session) { _ = s.MakeContainerPath(ctx, "/a/b/c") }),
	"framework.Session.MakePersistentPath": inSession(func(ctx context.Context, s *framework.Session) { _ = s.MakePersistentPath(ctx, "/a/b/c") }),
	"framework.Session.Multi":              inSession(func(ctx context.Context, s *framework.Session) { _, _ = s.Multi(ctx, bubble.Set("/d", "x")) }),
	"framework.Session.Prove":              inSession(func(ctx context.Context, s *framework.Session) { _ = s.Prove(ctx) }),
	"framework.Session.ReadAll":            inSession(func(ctx context.Context, s *framework.Session) { _, _ = s.ReadAll(ctx, framework.Read{Path: "/d"}) }),
	"framework.Session.Set":                inSession(func(ctx context.Context, s *framework.Session) { _, _ = s.Set(ctx, "/d", nil, -1) }),
	"framework.Session.Sync":               inSession(func(ctx context.Context, s *framework.Session) { _ = s.Sync(ctx, "/d") }),
	"framework.Session.Watch":              inSession(func(ctx context.Context, s *framework.Session) { _, _ = s.Watch(ctx, "/d") }),
	"framework.Session.WatchChildren":      inSession(func(ctx context.Context, s *framework.Session) { _, _, _ = s.WatchChildren(ctx, "/d") }),
	"framework.Session.WatchExists":        inSession(func(ctx context.Context, s *framework.Session) { _, _, _, _ = s.WatchExists(ctx, "/d") }),

	"recipes.Do": held(func(ctx context.Context, _ scene, m *locks.Mutex, l *recipes.Lease) { // the release of another lease
		_ = recipes.Do(ctx, given{l}, func(context.Context, *recipes.Lease) error { return nil })
	}),
	"recipes.EndLinger": func(s scene) call {
		m := must(locks.NewMutex(s.c, "/l", recipes.WithLinger(time.Hour)))
		bubble.Release(s.T, bubble.Acquire(s.T, context.Background(), m))
		return func(ctx context.Context) { _ = recipes.EndLinger(ctx, s.c, "/") }
	},
	"recipes.Lease.Do": held(func(ctx context.Context, _ scene, _ *locks.Mutex, l *recipes.Lease) {
		_ = l.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil })
	}),
	"recipes.Lease.Multi": held(func(ctx context.Context, _ scene, _ *locks.Mutex, l *recipes.Lease) {
		_, _ = l.Multi(ctx, bubble.Set("/d", "x"))
	}),
	"recipes.Lease.Release":     held(func(ctx context.Context, _ scene, _ *locks.Mutex, l *recipes.Lease) { _ = l.Release(ctx) }),
	"recipes.Line.Acquire":      func(s scene) call { return waits(s, line) },
	"recipes.Line.TryAcquire":   func(s scene) call { return of(line(s.c).TryAcquire) },
	"recipes.Line.First":        func(s scene) call { return func(ctx context.Context) { _, _, _ = line(s.c).First(ctx) } },
	"recipes.Line.Participants": func(s scene) call { return of(line(s.c).Participants) },
	"recipes.Line.Revoke": func(s scene) call {
		p := participant(s, line(s.other))
		return func(ctx context.Context) { _ = line(s.c).Revoke(ctx, p) }
	},

	"locks.Keyed.Close":        func(s scene) call { k := keyed(s); return func(ctx context.Context) { _ = k.Close(ctx) } },
	"locks.Keyed.Keys":         func(s scene) call { k := keyed(s); return of(k.Keys) },
	"locks.Mutex.Acquire":      func(s scene) call { return waits(s, mutex) },
	"locks.Mutex.TryAcquire":   func(s scene) call { return of(mutex(s.c).TryAcquire) },
	"locks.Mutex.Participants": func(s scene) call { return of(mutex(s.c).Participants) },
	"locks.Mutex.Revoke": func(s scene) call {
		p := participant(s, mutex(s.other))
		return func(ctx context.Context) { _ = mutex(s.c).Revoke(ctx, p) }
	},

	"rwlock.RWLock.Participants": func(s scene) call { return of(must(rwlock.New(s.c, "/l")).Participants) },
	"rwlock.RWLock.Revoke": func(s scene) call {
		bubble.Acquire(s.T, context.Background(), must(rwlock.New(s.other, "/l")).Writer())
		p := must(must(rwlock.New(s.c, "/l")).Participants(context.Background()))[0]
		return func(ctx context.Context) { _ = must(rwlock.New(s.c, "/l")).Revoke(ctx, p) }
	},

	"semaphore.Semaphore.Acquire":      func(s scene) call { return waits(s, permit) },
	"semaphore.Semaphore.TryAcquire":   func(s scene) call { return of(permit(s.c).TryAcquire) },
	"semaphore.Semaphore.Available":    func(s scene) call { return of(permit(s.c).Available) },
	"semaphore.Semaphore.Participants": func(s scene) call { return of(permit(s.c).Participants) },
	"semaphore.Semaphore.SetMax":       func(s scene) call { return func(ctx context.Context) { _ = permit(s.c).SetMax(ctx, 2) } },

	"leader.Election.Acquire":      func(s scene) call { return waits(s, candidate) },
	"leader.Election.TryAcquire":   func(s scene) call { return of(candidate(s.c).TryAcquire) },
	"leader.Election.Leader":       func(s scene) call { return of(candidate(s.c).Leader) },
	"leader.Election.Participants": func(s scene) call { return of(candidate(s.c).Participants) },
	"leader.Election.Observe": func(s scene) call {
		return func(ctx context.Context) {
			for range candidate(s.c).Observe(ctx) { //nolint:revive // until it ends
			}
		}
	},
	"leader.Election.Run": func(s scene) call {
		return func(ctx context.Context) {
			_ = candidate(s.c).Run(ctx, func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil })
		}
	},

	"presence.Announce":      func(s scene) call { return func(ctx context.Context) { _, _ = presence.Announce(ctx, s.c, "/p", nil) } },
	"presence.Group.Join":    func(s scene) call { return func(ctx context.Context) { _, _ = group(s).Join(ctx, "a", nil) } },
	"presence.Group.Read":    func(s scene) call { return func(ctx context.Context) { _, _, _ = group(s).Read(ctx) } },
	"presence.Group.Members": func(s scene) call { return of(group(s).Members) },
	"presence.Node.Close":    func(s scene) call { n := node(s); return func(ctx context.Context) { _ = n.Close(ctx) } },
	"presence.Node.Set":      func(s scene) call { n := node(s); return func(ctx context.Context) { _ = n.Set(ctx, []byte("x")) } },
	"presence.Node.Standing": func(s scene) call {
		n := must(presence.New(s.c, "/p", nil))
		return func(ctx context.Context) { _ = n.Start(); _ = n.Standing(ctx) }
	},
	"presence.Roster.Changes": func(s scene) call { r := follow(s); return func(ctx context.Context) { loop(r.Changes(ctx)) } },
	"presence.Roster.Close":   func(s scene) call { r := follow(s); return func(context.Context) { r.Close() } },
	"presence.Roster.Fresh":   func(s scene) call { return of(follow(s).Fresh) },
	"presence.Roster.Members": func(s scene) call { return func(ctx context.Context) { _, _ = follow(s).Members(ctx) } },

	"cache.Cache.Views": func(s scene) call { k := tree(s); return func(ctx context.Context) { loop(k.Views(ctx)) } },
	"cache.Value.Changes": func(s scene) call {
		v := cache.NewValue(tree(s), "/d", func(data []byte) (string, error) { return string(data), nil })
		return func(ctx context.Context) { loop(v.Changes(ctx)) }
	},
	"cache.Cache.Close": func(s scene) call { k := tree(s); return func(context.Context) { k.Close() } },
	"cache.Cache.Fresh": func(s scene) call { k := tree(s); return of(k.Fresh) },
	"cache.Cache.Known": func(s scene) call {
		k := must(cache.New(s.c, "/"))
		s.T.Cleanup(k.Close)
		return func(ctx context.Context) { k.Start(); _, _ = k.Known(ctx) }
	},
	"cache.Cache.Reach": func(s scene) call { k := tree(s); return func(ctx context.Context) { _, _ = k.Reach(ctx, 1<<40) } },
	"cache.Cache.Synced": func(s scene) call {
		k := must(cache.New(s.c, "/"))
		s.T.Cleanup(k.Close)
		return func(ctx context.Context) { k.Start(); _, _ = k.Synced(ctx) }
	},

	"discovery.Discovery.All":       func(s scene) call { return of(services(s).All) },
	"discovery.Discovery.Close":     func(s scene) call { d := services(s); return func(context.Context) { d.Close() } },
	"discovery.Discovery.Instances": func(s scene) call { return func(ctx context.Context) { _, _ = services(s).Instances(ctx, "s") } },
	"discovery.Discovery.Names":     func(s scene) call { return of(services(s).Names) },
	"discovery.Discovery.Register":  func(s scene) call { return func(ctx context.Context) { _, _ = services(s).Register(ctx, instance) } },
	"discovery.Registration.Close": func(s scene) call {
		r := must(services(s).Register(context.Background(), instance))
		return func(ctx context.Context) { _ = r.Close(ctx) }
	},
	"discovery.Registration.Update": func(s scene) call {
		r := must(services(s).Register(context.Background(), instance))
		return func(ctx context.Context) { _ = r.Update(ctx, instance) }
	},
	"discovery.Service.All": func(s scene) call {
		return func(ctx context.Context) { _, _ = must(services(s).Service("s")).All(ctx) }
	},
	"discovery.Service.Changes": func(s scene) call {
		return func(ctx context.Context) { loop(must(services(s).Service("s")).Changes(ctx)) }
	},
	"discovery.Service.Fresh": func(s scene) call {
		return func(ctx context.Context) { _, _ = must(services(s).Service("s")).Fresh(ctx) }
	},
	"discovery.Service.Pick": func(s scene) call {
		return func(ctx context.Context) { _, _ = must(services(s).Service("s")).Pick(ctx) }
	},

	"counter.Counter.Add":           func(s scene) call { return func(ctx context.Context) { _, _ = count(s).Add(ctx, 1) } },
	"counter.Counter.AddOnce":       func(s scene) call { return func(ctx context.Context) { _, _ = count(s).AddOnce(ctx, "id", 1) } },
	"counter.Counter.AwaitRemoval":  func(s scene) call { return func(ctx context.Context) { _ = count(s).AwaitRemoval(ctx) } },
	"counter.Counter.CompareAndSet": func(s scene) call { return func(ctx context.Context) { _, _ = count(s).CompareAndSet(ctx, 0, 1) } },
	"counter.Counter.Get":           func(s scene) call { return of(count(s).Get) },
	"counter.Counter.Listen": func(s scene) call {
		return func(ctx context.Context) { _, _ = count(s).Listen(ctx, func(int64, error) {}) }
	},
	"counter.Counter.Reserve": func(s scene) call { return func(ctx context.Context) { _, _ = count(s).Reserve(ctx, 10) } },
	"counter.Counter.Set":     func(s scene) call { return func(ctx context.Context) { _ = count(s).Set(ctx, 1) } },

	"barrier.Barrier.Remove": func(s scene) call { return func(ctx context.Context) { _ = must(barrier.New(s.c, "/b")).Remove(ctx) } },
	"barrier.Barrier.Set":    func(s scene) call { return func(ctx context.Context) { _ = must(barrier.New(s.c, "/b")).Set(ctx) } },
	"barrier.Barrier.Wait": func(s scene) call {
		if err := must(barrier.New(s.other, "/b")).Set(context.Background()); err != nil {
			s.T.Fatal(err)
		}
		return func(ctx context.Context) { _ = must(barrier.New(s.c, "/b")).Wait(ctx) }
	},
	"barrier.Double.Enter": func(s scene) call { return of(must(barrier.NewDouble(s.c, "/b", 2)).Enter) },
	"barrier.Inside.Leave": func(s scene) call {
		go func() { _, _ = must(barrier.NewDouble(s.other, "/b", 2)).Enter(context.Background()) }()
		in := must(must(barrier.NewDouble(s.c, "/b", 2)).Enter(context.Background()))
		return func(ctx context.Context) { _ = in.Leave(ctx) }
	},

	"inspect.Read": func(s scene) call { return func(ctx context.Context) { _, _ = inspect.Read(ctx, s.c, "/l") } },
	"inspect.Fill": func(s scene) call {
		bubble.Acquire(s.T, context.Background(), mutex(s.other))
		l := must(inspect.Read(context.Background(), s.c, "/l", inspect.WithoutDetails()))
		return func(ctx context.Context) { _ = inspect.Fill(ctx, s.c, &l, 10) }
	},
	"inspect.FindDeadlocks": func(s scene) call { return func(ctx context.Context) { _, _ = inspect.FindDeadlocks(ctx, s.c, "/") } },
	"inspect.Tree":          func(s scene) call { return func(ctx context.Context) { _, _ = inspect.Tree(ctx, s.c, "/") } },
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// of is a call with a context alone.
func of[V any](f func(context.Context) (V, error)) call {
	return func(ctx context.Context) { _, _ = f(ctx) }
}

func closing(f func() error) call { return func(context.Context) { _ = f() } }

func same(old []byte, _ *zk.Stat) ([]byte, error) { return old, nil }

func inSession(do func(context.Context, *framework.Session)) func(scene) call {
	return func(s scene) call {
		sess := s.Session(s.c)
		return func(ctx context.Context) { do(ctx, sess) }
	}
}

func held(do func(context.Context, scene, *locks.Mutex, *recipes.Lease)) func(scene) call {
	return func(s scene) call {
		m := mutex(s.c)
		l := bubble.Acquire(s.T, context.Background(), m)
		return func(ctx context.Context) { do(ctx, s, m, l) }
	}
}

// given is an acquirer of what is held already.
type given struct{ l *recipes.Lease }

func (g given) Acquire(context.Context) (*recipes.Lease, error)    { return g.l, nil }
func (g given) TryAcquire(context.Context) (*recipes.Lease, error) { return g.l, nil }
func (g given) Path() string                                       { return "/l" }

// waits is an Acquire behind another client.
func waits[A recipes.Acquirer](s scene, at func(*framework.Client) A) call {
	bubble.Acquire(s.T, context.Background(), at(s.other))
	return of(at(s.c).Acquire)
}

// loop runs a loop until it ends.
func loop[K, V any](all iter.Seq2[K, V]) {
	for range all { // its body does nothing
	}
}

// seen is an acquirer that lists those in line.
type seen interface {
	recipes.Acquirer
	Participants(ctx context.Context) ([]recipes.Participant, error)
}

func participant(s scene, a seen) recipes.Participant {
	bubble.Acquire(s.T, context.Background(), a)
	return must(a.Participants(context.Background()))[0]
}

func line(c *framework.Client) *recipes.Line {
	return must(recipes.NewLine(c, "/l", "x.v1", "n", func(string, string) bool { return true }))
}
func mutex(c *framework.Client) *locks.Mutex          { return must(locks.NewMutex(c, "/l")) }
func permit(c *framework.Client) *semaphore.Semaphore { return must(semaphore.New(c, "/l", 1)) }
func candidate(c *framework.Client) *leader.Election  { return must(leader.New(c, "/l")) }
func group(s scene) *presence.Group                   { return must(presence.NewGroup(s.c, "/g")) }
func follow(s scene) *presence.Roster {
	r := group(s).Follow()
	s.T.Cleanup(r.Close)
	return r
}

func node(s scene) *presence.Node {
	return must(presence.Announce(context.Background(), s.c, "/p", nil))
}

func keyed(s scene) *locks.Keyed {
	k := must(locks.NewKeyed(s.c, "/keys", recipes.WithLinger(time.Hour)))
	bubble.Release(s.T, bubble.Acquire(s.T, context.Background(), k.Key("a")))
	return k
}

func tree(s scene) *cache.Cache {
	k := must(cache.New(s.c, "/"))
	k.Start()
	s.T.Cleanup(k.Close)
	must(k.Synced(context.Background()))
	return k
}

var instance = discovery.Instance[json.RawMessage]{Name: "s", ID: "i", Address: "a"}

func services(s scene) *discovery.Discovery[json.RawMessage] {
	d := must(discovery.New(s.c, "/services", discovery.JSON[json.RawMessage]("")))
	s.T.Cleanup(d.Close)
	return d
}

func count(s scene) *counter.Counter { return must(counter.New(s.c, "/c")) }
