package untrusted

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// root is the directory above all that the recipes create.
const root = "/shared"

// all is what a writer takes: nothing is left for others.
const all = 100

// seat is a way to acquire, and how much it takes of which resource.
type seat struct {
	recipes.Acquirer
	takes map[string]int
}

// kind is a recipe, as several clients use it.
type kind struct {
	name    string
	dirs    []string // all in which it creates znodes
	limit   int      // of each resource; 0: not judged
	ordered bool     // tokens order the grants of a resource
	seats   func(c *framework.Client) ([]seat, error)
}

func one(a recipes.Acquirer, err error) ([]seat, error) {
	return []seat{{a, map[string]int{"it": all}}}, err
}

var kinds = []kind{
	{"mutex", []string{root}, all, true, func(c *framework.Client) ([]seat, error) {
		return one(locks.NewMutex(c, root, recipes.WithHandoffs(3), recipes.WithLinger(500*time.Millisecond), recipes.WithMaxHold(5*time.Second)))
	}},
	{"mutex of Kazoo", []string{root}, all, true, func(c *framework.Client) ([]seat, error) {
		return one(locks.NewMutex(c, root, locks.WithLayout(locks.LayoutKazoo)))
	}},
	{"election", []string{root}, all, true, func(c *framework.Client) ([]seat, error) { return one(leader.New(c, root)) }},
	{"read and write", []string{root}, all, false, readAndWrite(recipes.WithLinger(500 * time.Millisecond))},
	{"read and write of Curator", []string{root}, all, false, readAndWrite(rwlock.WithLayout(rwlock.LayoutCurator))},
	{"semaphore", []string{root, root + "/locks", root + "/leases"}, 3, false, permits()},
	{"semaphore with a recorded limit", []string{root, root + "/locks", root + "/leases"}, 0, false, permits(semaphore.WithRecordedLimit())},
	{"keyed, and all of several", []string{root, root + "/a", root + "/b"}, all, true, func(c *framework.Client) ([]seat, error) {
		keyed, err := locks.NewKeyed(c, root)
		if err != nil {
			return nil, err
		}
		both, err := locks.All(keyed.Key("b"), keyed.Key("a"))
		return []seat{{keyed.Key("a"), map[string]int{"a": all}}, {keyed.Key("b"), map[string]int{"b": all}}, {both, map[string]int{"a": all, "b": all}}}, err
	}},
	{"line", []string{root}, all, false, func(c *framework.Client) (seats []seat, err error) {
		for _, cells := range []string{"0", "1", "01"} {
			line, lineErr := recipes.NewLine(c, root, "cells.v1", cells, strings.ContainsAny)
			takes := make(map[string]int)
			for _, cell := range cells {
				takes[string(cell)] = all
			}
			seats, err = append(seats, seat{line, takes}), errors.Join(err, lineErr)
		}
		return seats, err
	}},
}

func readAndWrite(opt rwlock.Option) func(c *framework.Client) ([]seat, error) {
	return func(c *framework.Client) ([]seat, error) {
		rw, err := rwlock.New(c, root, opt)
		if err != nil {
			return nil, err
		}
		return []seat{{rw.Reader(), map[string]int{"it": 1}}, {rw.Writer(), map[string]int{"it": all}}, {downgraded{rw}, map[string]int{"it": 1}}}, nil
	}
}

func permits(opts ...semaphore.Option) func(c *framework.Client) ([]seat, error) {
	return func(c *framework.Client) ([]seat, error) {
		s, err := semaphore.New(c, root, 3, opts...)
		if err != nil {
			return nil, err
		}
		return []seat{{s, map[string]int{"it": 1}}, {s.Permits(2), map[string]int{"it": 2}}, {s.Permits(3), map[string]int{"it": 3}}}, nil
	}
}

// downgraded acquires the write lock, and keeps the read lock alone.
type downgraded struct{ rw *rwlock.RWLock }

func (d downgraded) Path() string { return d.rw.Path() }

func (d downgraded) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return d.acquire(ctx, d.rw.Writer().Acquire)
}

func (d downgraded) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return d.acquire(ctx, d.rw.Writer().TryAcquire)
}

func (d downgraded) acquire(ctx context.Context, write func(context.Context) (*recipes.Lease, error)) (*recipes.Lease, error) {
	writing, err := write(ctx)
	if err != nil {
		return nil, err
	}
	inside, cancel := writing.Bind(ctx)
	reading, err := d.rw.Reader().Acquire(inside)
	cancel()
	releaseErr := writing.Release(ctx)
	if err != nil {
		return nil, err
	}
	if releaseErr != nil && !errors.Is(releaseErr, recipes.ErrNotHeld) {
		return nil, errors.Join(releaseErr, reading.Release(ctx))
	}
	return reading, nil
}

// scene is several clients that use one recipe, each with two goroutines, and
// the judge of what they are granted.
type scene struct {
	*bubble.World
	kind
	t       *testing.T
	clients []*framework.Client
	stop    chan struct{} // closed: no worker begins another round
	workers sync.WaitGroup

	mu      sync.Mutex          // guards what follows
	touched map[string]bool     // paths that somebody else has deleted
	robbed  map[int64]time.Time // by session, when that was last done to a znode of it
	held    map[*holding]bool
	latest  map[string]recipes.Token // by resource: the greatest
	rounds  int
	grants  int
	lateBy  time.Duration // the longest time in which two held that exclude each other
	pairs   int           // of such
	errs    map[string]int
}

type holding struct {
	who     string
	takes   map[string]int
	began   time.Time // when Acquire was called
	session int64
	*recipes.Lease
}

var timeout = bubble.Timeout

// slack is how soon a call that is cancelled returns, and a holder learns that
// its znode was deleted.
const slack = time.Second

func newScene(t *testing.T, w *bubble.World, k kind, clients ...*framework.Client) *scene {
	return &scene{
		World: w, kind: k, t: t, clients: clients, stop: make(chan struct{}),
		touched: make(map[string]bool), robbed: make(map[int64]time.Time), held: make(map[*holding]bool), latest: make(map[string]recipes.Token), errs: make(map[string]int),
	}
}

// begin starts the workers.
func (s *scene) begin(rnd *rand.Rand) {
	for i, c := range s.clients {
		seats, err := s.seats(c)
		if err != nil {
			s.t.Fatal(err)
		}
		for g := range 2 {
			rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
			s.workers.Go(func() {
				for {
					select {
					case <-s.stop:
						return
					case <-time.After(time.Duration(rnd.IntN(300)) * time.Millisecond):
					}
					s.round(rnd, fmt.Sprintf("client %d.%d", i, g), seats[rnd.IntN(len(seats))])
				}
			})
		}
	}
}

// round is an acquisition, work and a release.
func (s *scene) round(rnd *rand.Rand, who string, at seat) {
	patience := []time.Duration{100 * time.Millisecond, 5 * time.Second, 30 * time.Second}[rnd.IntN(3)]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	enter, what := at.Acquire, "Acquire"
	if rnd.IntN(5) == 0 {
		enter, what = at.TryAcquire, "TryAcquire"
	}
	s.mu.Lock()
	s.rounds++
	s.mu.Unlock()
	began := time.Now()
	lease, err := enter(ctx)
	if took := time.Since(began); took > patience+slack {
		s.t.Errorf("%s: %s took %v of at most %v", who, what, took, patience)
	}
	if err != nil {
		s.failed(who, what, err)
		return
	}
	h := &holding{who, at.takes, began, 0, lease}
	if stat, ok := s.Stat(lease.Path()); ok {
		h.session = stat.EphemeralOwner
	}
	s.granted(h)
	work := time.NewTimer(time.Duration(rnd.IntN(2000)) * time.Millisecond)
	select {
	case <-work.C:
	case <-lease.Context().Done():
	}
	if rnd.IntN(3) == 0 {
		s.write(h)
	}
	s.mu.Lock()
	delete(s.held, h)
	s.mu.Unlock()
	ctx, cancel = context.WithTimeout(context.Background(), patience)
	defer cancel()
	began = time.Now()
	err = lease.Release(ctx)
	if took := time.Since(began); took > patience+slack {
		s.t.Errorf("%s: Release took %v of at most %v", who, took, patience)
	}
	if err != nil {
		s.failed(who, "Release", err)
	}
}

// write makes a write behind the lease's guard.
func (s *scene) write(h *holding) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := h.Multi(ctx, &zk.SetDataRequest{Path: "/guarded", Data: []byte(h.who), Version: -1})
	if err != nil {
		s.failed(h.who, "Multi", err)
	}
}

// expected are the errors that say what is so.
var expected = []error{
	context.DeadlineExceeded, recipes.ErrBusy, recipes.ErrNotHeld, recipes.ErrLayout, recipes.ErrExhausted, semaphore.ErrLimit,
	framework.ErrSessionLost, zk.ErrNoAuth, zk.ErrNoNode, zk.ErrNotEmpty, zk.ErrNodeExists, zk.ErrNoChildrenForEphemerals,
	zk.ErrConnectionClosed, zk.ErrNoServer,
}

func (s *scene) failed(who, what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range expected {
		if errors.Is(err, one) {
			s.errs[what+": "+one.Error()]++
			return
		}
	}
	s.t.Errorf("%s: %s: %v", who, what, err)
}

// granted judges a new lease.
func (s *scene) granted(h *holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants++
	s.held[h] = true
	if s.limit == 0 || !h.Held() {
		return
	}
	mine := s.mayBeTouched(h)
	for resource, takes := range h.takes {
		// With those alone whose znodes were not touched, the limit is kept.
		sum, intact, touched, beside := takes, takes, []*holding(nil), []string(nil)
		for other := range s.held {
			if other == h || other.takes[resource] == 0 || !other.Held() {
				continue
			}
			sum += other.takes[resource]
			if s.isTouched(other) {
				touched = append(touched, other)
			}
			if s.mayBeTouched(other) {
				continue
			}
			intact += other.takes[resource]
			beside = append(beside, fmt.Sprint(other.who, " with ", znodes(other.Lease)))
		}
		if s.isTouched(h) {
			touched = append(touched, h)
		}
		if sum > s.limit {
			for _, one := range touched {
				s.pairs++
				go s.learns(one)
			}
		}
		if intact > s.limit && !mine {
			s.t.Errorf("%s was granted %s beside %s", h.who, znodes(h.Lease), beside)
		}
		token := h.token(resource)
		if s.ordered && token.Compare(s.latest[resource]) <= 0 && !mine {
			judge.Errorf(s.t, "%s: token %v after %v", h.who, token, s.latest[resource])
		}
		if token.Compare(s.latest[resource]) > 0 {
			s.latest[resource] = token
		}
	}
}

// learns checks that a holder learns soon that its znode was deleted.
func (s *scene) learns(h *holding) {
	began := time.Now()
	for h.Held() && !errors.Is(h.Err(), recipes.ErrReleased) {
		if time.Since(began) > slack {
			s.t.Errorf("%s still holds %s\n%s", h.who, znodes(h.Lease), s.Tree())
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lateBy = max(s.lateBy, time.Since(began))
}

// znodes returns the paths of a lease's znodes.
func znodes(l *recipes.Lease) []string {
	parts := l.Parts()
	if len(parts) == 0 {
		return []string{l.Path()}
	}
	var all []string
	for _, part := range parts {
		all = append(all, znodes(part)...)
	}
	return all
}

// isTouched reports whether somebody else has deleted a znode of a lease, so
// that its holder is about to learn of the loss.
func (s *scene) isTouched(h *holding) bool {
	return slices.ContainsFunc(znodes(h.Lease), func(path string) bool { return s.touched[path] })
}

// mayBeTouched is isTouched, and also counts what the path of a semaphore's
// lease does not show: its other permits, and the znode that stood in line for
// them. Any znode of its session counts, that was deleted since the call began.
func (s *scene) mayBeTouched(h *holding) bool {
	return s.isTouched(h) || s.name == "semaphore" && !s.robbed[h.session].Before(h.began)
}

// token returns the token of the part of a lease that has the resource.
func (h *holding) token(resource string) recipes.Token {
	for _, part := range h.Parts() {
		if strings.HasSuffix(part.LockPath(), "/"+resource) {
			return part.Token()
		}
	}
	return h.Token()
}

// end lets the workers finish, and then checks that every seat can be taken at
// every client, that the clients close, and that nothing is left.
func (s *scene) end() {
	close(s.stop)
	s.workers.Wait()
	for i, c := range s.clients {
		seats, err := s.seats(c)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, at := range seats {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			lease, err := at.Acquire(ctx)
			if err != nil {
				s.t.Errorf("client %d afterwards: %v\n%s", i, err, s.Tree())
			} else if err := lease.Release(ctx); err != nil {
				s.t.Errorf("client %d afterwards: %v", i, err)
			}
			cancel()
		}
	}
	for _, c := range s.clients {
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	}
}

// summary is what has happened, for the log.
func (s *scene) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []string
	for _, err := range slices.Sorted(maps.Keys(s.errs)) {
		errs = append(errs, fmt.Sprintf("%d %s", s.errs[err], err))
	}
	return fmt.Sprintf("%d rounds, %d grants, %d pairs for up to %v; %s", s.rounds, s.grants, s.pairs, s.lateBy, strings.Join(errs, "; "))
}
