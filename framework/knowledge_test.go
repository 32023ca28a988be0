package framework_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Members and networks fail at random, and what is asked all the while is whether
// a client ever believes in a session that the ensemble has expired: Proven, and
// what its holders were told. ZKR_SEED takes a seed back.
//
// A leader that has lost its quorum and does not know it is what proof by syncs
// does not cover, and says so; under it leaders are stopped, but neither frozen
// nor cut off from the others.
func TestKnowledgeNeverOutlivesTheSession(t *testing.T) {
	const tick = 2 * time.Second
	seed := rand.Uint64()
	if text := os.Getenv("ZKR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ZKR_SEED=%d", seed)
	run := func(t *testing.T, timeout time.Duration, proof framework.Proof, credulous time.Duration) (wrong int, lost int32) {
		synctest.Test(t, func(t *testing.T) {
			k := &knowledge{
				t: t, ens: testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithTick(tick)),
				rnd: rand.New(rand.NewPCG(seed, uint64(timeout)+uint64(proof))), timeout: timeout, proof: proof, credulous: credulous,
			}
			k.run(5 * time.Minute)
			wrong, lost = k.wrong, k.lost.Load()
		})
		return wrong, lost
	}
	lost, caught := int32(0), 0
	for _, timeout := range []time.Duration{2 * tick, 2*tick + tick/2, 3 * tick, 5 * tick} {
		for _, proof := range []framework.Proof{framework.ProofSync, framework.ProofWrite} {
			t.Run(fmt.Sprintf("%v proof %d", timeout, proof), func(t *testing.T) {
				wrong, n := run(t, timeout, proof, 0)
				if wrong > 0 {
					t.Errorf("%d times a session was believed in that had expired", wrong)
				}
				lost += n
				wrong, _ = run(t, timeout, proof, timeout/2)
				caught += wrong
			})
		}
	}
	if lost < 50 {
		t.Errorf("only %d sessions were lost: the test has no bite", lost)
	}
	if caught == 0 {
		t.Error("a holder that believes for half a time-out longer was not caught")
	}
}

type knowledge struct {
	t         *testing.T
	ens       *testutil.Embedded
	rnd       *rand.Rand
	timeout   time.Duration
	proof     framework.Proof
	credulous time.Duration // holders believe for so much longer: it must be caught
	lost      atomic.Int32  // holds that were told so
	wrong     int           // times that somebody believed in a session that had expired
	troubled  map[int]bool  // members
}

// believer is a client, and what the holder of its latest session believes.
type believer struct {
	c       *framework.Client
	network *testutil.ClientNet
	s       *framework.Session
	held    *atomic.Bool
}

func (k *knowledge) run(d time.Duration) {
	var believers []*believer
	for range 3 {
		opts := []framework.Option{framework.WithSessionTimeout(k.timeout), framework.WithProof(k.proof)}
		if k.rnd.IntN(3) == 0 {
			opts = append(opts, framework.WithServerTick(k.timeout/2))
		}
		c, network := connect(k.t, k.ens, opts...)
		believers = append(believers, &believer{c: c, network: network, held: new(atomic.Bool)})
	}
	k.troubled = make(map[int]bool)
	next := time.Now()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(41 * time.Millisecond) {
		for _, b := range believers {
			k.check(b)
			k.hold(b)
		}
		if time.Now().After(next) {
			next = time.Now().Add(k.upTo(k.timeout))
			k.trouble(believers[k.rnd.IntN(len(believers))])
		}
	}
	k.heal()
	for _, b := range believers {
		b.network.Heal()
	}
}

// check asks the client first: the ensemble may expire the session at any moment
// after that, but never before.
func (k *knowledge) check(b *believer) {
	if b.s == nil {
		return
	}
	believes := b.held.Load() || b.s.Proven() || k.credulous > 0 && time.Now().Before(b.s.Deadline().Add(k.credulous))
	switch {
	case !believes:
		b.s = nil
	case !alive(k.ens, b.s.ID()):
		if k.credulous == 0 {
			k.t.Errorf("the ensemble has expired session %#x, %v before its deadline", b.s.ID(), time.Until(b.s.Deadline()))
		}
		k.wrong++
		b.s = nil
	}
}

func (k *knowledge) hold(b *believer) {
	if b.s != nil {
		return
	}
	s, err := b.c.Session()
	if err != nil {
		return
	}
	held := new(atomic.Bool)
	held.Store(true)
	if _, err := s.Hold(func(error) { held.Store(false); k.lost.Add(1) }); err != nil {
		return
	}
	b.s, b.held = s, held
}

// done is over, for a look without a wait.
var done = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// trouble does one thing to a client's network or to a member.
func (k *knowledge) trouble(b *believer) {
	k.ens.Latency(k.upTo(k.timeout / 20))
	member := k.rnd.IntN(3)
	leads := member == k.ens.Leader() && k.proof == framework.ProofSync
	switch n := k.rnd.IntN(14); {
	case n < 2:
		b.network.Cut()
	case n == 2:
		b.network.CutOneWay(k.rnd.IntN(2) == 0)
	case n == 3:
		b.network.Drop()
	case n < 7:
		b.network.Heal()
	case n == 7:
		k.heal()
	case len(k.troubled) > 0 && !k.troubled[member]: // a majority is left
	case k.ens.WaitServing(done) != nil: // or what is inspected may be an old leader's state
	case n == 8:
		k.ens.Mute(member)
		k.troubled[member] = true
	case n == 9:
		k.ens.Wedge(member)
		k.troubled[member] = true
	case n == 10:
		k.ens.Lag(member)
		k.troubled[member] = true
	case n == 11 && k.ens.Stop(member) == nil:
		k.troubled[member] = true
	case n == 12 && !leads && k.ens.Pause(member) == nil:
		k.troubled[member] = true
	case n == 13 && !leads:
		k.ens.Isolate(member)
		k.troubled[member] = true
	}
}

func (k *knowledge) heal() {
	k.ens.Heal()
	for member := range k.troubled {
		k.ens.Unmute(member)
		k.ens.Unwedge(member)
		k.ens.Unlag(member)
		_ = k.ens.Resume(member)  // unless it is not paused
		_ = k.ens.Restart(member) // unless it runs
	}
	clear(k.troubled)
}

func (k *knowledge) upTo(d time.Duration) time.Duration { return time.Duration(k.rnd.Int64N(int64(d))) }
