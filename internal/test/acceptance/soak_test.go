//go:build unix

package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// soak is a storm whose faults are drawn from a seed, for as long as wanted.
type soak struct {
	storm
	t        *testing.T
	rnd      *rand.Rand
	began    time.Time
	clients  []*load.Process
	faults   map[string]int
	watching *framework.Client
}

// All recipes on real members, used by several processes with several
// goroutines each, while members are killed, frozen and restarted, and
// processes killed and frozen, at random. By the ledgers there are never two
// exclusive holders or too many permits. By the ledgers and by guarded writes
// tokens increase. At the end every contender is granted again, and nothing is
// left. It runs for ZKR_SOAK, with the faults of ZKR_SEED, which it prints.
func TestSoakOnRealMembers(t *testing.T) {
	duration, err := time.ParseDuration(os.Getenv("ZKR_SOAK"))
	if err != nil {
		t.Skip("takes long: to run it for three minutes, set ZKR_REAL=1 ZKR_SOAK=3m")
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ZKR_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ZKR_SEED=%d", seed)
	const processes, here = 3, 2
	ens := apache.Start(t, 3)
	s := &soak{
		storm: storm{ens, t.TempDir(), "/suite/soak"},
		t:     t, rnd: rand.New(rand.NewPCG(seed, 0)), began: time.Now(), faults: map[string]int{}, watching: client(t, ens),
	}
	load.MakeResources(t, s.watching, s.path)
	for range processes {
		s.clients = append(s.clients, load.Start(t, "soak", s.Servers(), s.dir, s.path))
	}
	ctx, cancel := context.WithCancel(t.Context())
	total := &load.Figures{}
	var wg sync.WaitGroup
	var nets []*testutil.ClientNet
	for i := range here {
		net := s.ClientNet(fmt.Sprint("here ", i))
		nets = append(nets, net)
		wg.Go(func() {
			if err := load.Run(ctx, s.Servers(), s.dir, s.path, fmt.Sprint(i), total, append(soakOptions, framework.WithDialer(net.Dial))...); err != nil {
				t.Error(err)
			}
		})
	}
	s.goesOn(t)
	for time.Since(s.began) < duration && !t.Failed() {
		s.strike(nets)
		time.Sleep(time.Duration(s.rnd.IntN(2000)) * time.Millisecond)
	}
	s.everybodyIsServed(here)
	cancel()
	for _, p := range s.clients {
		p.In.Close()
	}
	wg.Wait()
	for _, p := range s.clients {
		var f load.Figures
		if err := json.Unmarshal([]byte(p.Expect(t, "figures")), &f); err != nil {
			t.Fatal(err)
		}
		p.Expect(t, "done")
		total.Add(&f)
	}
	grants := 0
	for _, name := range load.Ledgers {
		l := load.Ledger(filepath.Join(s.dir, name))
		l.Acceptable(t, load.Permits, 100)
		grants += l.Grants(t)
		path := s.path + "/" + name
		if name == "semaphore" {
			nothingLeft(t, s.watching, path+"/leases")
			path += "/locks"
		}
		nothingLeft(t, s.watching, path)
	}
	t.Logf("%v: %d grants, %d of them lost, %d guarded writes, %d refused, %d of unknown outcome, longest wait %v, faults %v",
		time.Since(s.began).Round(time.Second), grants, total.Losses, total.Writes, total.Refused, total.Unknown, total.Wait.Round(time.Millisecond), s.faults)
}

// strike does one thing to a member, a process or a network, and undoes it.
func (s *soak) strike(nets []*testutil.ClientNet) {
	what := []string{
		"a member is killed", "the leader is killed", "a member stands still", "two members are killed", "a process is killed",
		"a process stands still", "a process stands still", "a connection breaks", "a client is cut off",
	}[s.rnd.IntN(9)]
	member, net := s.rnd.IntN(s.Members()), nets[s.rnd.IntN(len(nets))]
	i := s.rnd.IntN(len(s.clients))
	d := time.Duration(100+s.rnd.IntN(int(soakSession.Milliseconds())*4/3)) * time.Millisecond
	s.t.Logf("%v: %s for %v (member %d, process %d)", time.Since(s.began).Round(time.Millisecond), what, d, member, s.clients[i].Pid)
	s.faults[what]++
	switch what {
	case "a member is killed":
		s.stopped(d, member)
	case "the leader is killed":
		s.stopped(d, load.Leading(s.t, s))
	case "two members are killed":
		s.stopped(d, member, (member+1)%s.Members())
	case "a member stands still":
		if err := s.Pause(member); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(d)
		if err := s.Resume(member); err != nil {
			s.t.Fatal(err)
		}
	case "a process is killed":
		s.note("frozen", s.clients[i])
		if err := s.clients[i].Kill(); err != nil {
			s.t.Fatal(err)
		}
		s.clients[i] = load.Start(s.t, "soak", s.Servers(), s.dir, s.path)
	case "a process stands still":
		s.freeze(s.clients[i], d)
	case "a connection breaks":
		net.Drop()
	case "a client is cut off":
		net.Cut()
		time.Sleep(d)
		net.Heal()
	}
}

func (s *soak) stopped(d time.Duration, members ...int) {
	for _, m := range members {
		if err := s.Stop(m); err != nil {
			s.t.Fatal(err)
		}
	}
	time.Sleep(d)
	s.back(s.t, members...)
}

// freeze stops a process for d. No lock can prevent what it does late on leases
// that it does not yet know to be lost, so it counts again only a while after.
func (s *soak) freeze(p *load.Process, d time.Duration) {
	const late = time.Second
	s.note("frozen", p)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(d)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(late)
	s.note("thawed", p)
}

func (s *soak) note(what string, p *load.Process) {
	for _, name := range load.Ledgers {
		if err := load.Ledger(filepath.Join(s.dir, name)).Append("%s %d", what, p.Pid); err != nil {
			s.t.Fatal(err)
		}
	}
}

// everybodyIsServed waits, after the last fault, until each goroutine of each
// client has been granted again: no wakeup was lost.
func (s *soak) everybodyIsServed(here int) {
	var names []string
	for i := range here {
		names = append(names, strconv.Itoa(i))
	}
	for _, p := range s.clients {
		names = append(names, strconv.Itoa(p.Pid))
	}
	workers := map[string][]string{"mutex": {"0", "1", "8"}, "rwlock": {"2", "3", "4"}, "semaphore": {"5", "6"}, "second": {"7", "8"}, "election": {"leader"}}
	for _, name := range load.Ledgers {
		l := load.Ledger(filepath.Join(s.dir, name))
		text, err := l.Read()
		if err != nil {
			s.t.Fatal(err)
		}
		before := len(text)
		for _, process := range names {
			for _, worker := range workers[name] {
				who := process + "." + worker
				bubble.AwaitTrue(s.t, who+" is granted "+name+" again", func() bool {
					text, err := l.Read()
					return err == nil && load.SectionBegins(string(text[before:]), who)
				})
			}
		}
	}
}
