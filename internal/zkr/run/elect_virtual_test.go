package run

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/internal/zkr/live"
)

// commands stands for the commands that subcommands start: each runs until it
// gets SIGTERM, and ends with 3 then.
type commands struct {
	mu      sync.Mutex
	started []string    // the names of those who have started one
	at      []time.Time // when
	running int
}

// of returns what starts a command in the name of a subcommand.
func (c *commands) of(name string) func(program string, args, env []string) (*job, error) {
	return func(string, []string, []string) (*job, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running++; c.running > 1 {
			return nil, errors.New("two leaders")
		}
		c.started, c.at = append(c.started, name), append(c.at, time.Now())
		j := &job{ended: make(chan struct{})}
		j.signal = func(sig os.Signal) error {
			if sig == syscall.SIGTERM {
				c.end(j, 3)
			}
			return nil
		}
		j.kill = func() {
			select {
			case <-j.ended: // for what it has left
			default:
				panic("killed, although it ends at SIGTERM")
			}
		}
		return j, nil
	}
}

func (c *commands) end(j *job, code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	j.code = code
	close(j.ended)
}

func (c *commands) starts() (names []string, at []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.started), slices.Clone(c.at)
}

func (c *commands) n() int {
	names, _ := c.starts()
	return len(names)
}

// candidate starts zkr elect.
func (c *commands) candidate(t *testing.T, w *bubble.World, name string, change func(*electCommand)) *virtual {
	t.Helper()
	command := &electCommand{leaseCommand: within(w, parsed(t)).leaseCommand, id: name, layout: live.ElectionLayout()}
	command.command, command.start = []string{"cmd"}, c.of(name)
	change(command)
	return startVirtual(command.run)
}

// TestMaxTerm: leaders take turns while others wait, and keep leading while
// none does.
func TestMaxTerm(t *testing.T) {
	const maxTerm = 2 * time.Second
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var c commands
		candidate := func(name string) *virtual {
			return c.candidate(t, w, name, func(command *electCommand) { command.maxTerm = maxTerm })
		}
		a := candidate("a")
		time.Sleep(10 * maxTerm)
		b := candidate("b")
		time.Sleep(4*maxTerm + maxTerm/2)
		names, at := c.starts()
		if !slices.Equal(names, []string{"a", "b", "a", "b", "a", "b"}) {
			t.Errorf("they led in the order %q", names)
		}
		for i := 2; i < len(at); i++ { // the first one led for long, alone
			if took := at[i].Sub(at[i-1]); took < maxTerm || took > maxTerm+time.Second/4 {
				t.Errorf("term %d lasted %v", i, took)
			}
		}
		for _, test := range []struct {
			v    *virtual
			want int
		}{{a, 0}, {b, 3}} { // a waits
			test.v.in.Signals.Arrived <- syscall.SIGTERM
			if code, err := test.v.end(t); code != test.want {
				t.Errorf("exit code %d, want %d: %v", code, test.want, err)
			}
		}
		w.Empty("/l")
	})
}

// TestShortTerms: a command that succeeds at once does not keep the ensemble
// busy.
func TestShortTerms(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var c commands
		v := c.candidate(t, w, "a", func(command *electCommand) {
			start := command.start
			command.start = func(program string, args, env []string) (*job, error) {
				j, err := start(program, args, env)
				if err == nil {
					c.end(j, 0)
				}
				return j, err
			}
		})
		time.Sleep(5*shortestTerm + shortestTerm/2)
		v.in.Signals.Arrived <- syscall.SIGHUP
		if code, err := v.end(t); code != 0 {
			t.Errorf("exit code %d, want 0: %v", code, err)
		}
		if n := c.n(); n != 6 || strings.Count(v.errs.String(), "cmd ended after 0s; campaigning again in 1s\n") != n {
			t.Errorf("%d terms; it said %q", n, v.errs.String())
		}
	})
}

// TestTermLost: the loss of a term ends its command, but not the campaign,
// except with --once.
func TestTermLost(t *testing.T) {
	for _, once := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			var c commands
			v := c.candidate(t, w, "a", func(command *electCommand) { command.once = once })
			led := func(n int) {
				t.Helper()
				bubble.AwaitTrue(t, "it leads", func() bool { return c.n() == n })
			}
			led(1)
			if err := w.Connect("another").Delete(t.Context(), "/l/"+w.InLine("/l", 1)[0], -1); err != nil {
				t.Fatal(err)
			}
			want := cli.ExitLost
			if !once {
				led(2)
				if said := v.errs.String(); !strings.Contains(said, "zkr: /l: lease lost (") || !strings.Contains(said, "/l: lease lost while cmd ran: ") {
					t.Errorf("it said %q", said)
				}
				v.in.Signals.Arrived <- syscall.SIGTERM
				want = 3
			}
			if code, err := v.end(t); code != want {
				t.Errorf("once %v: exit code %d, want %d: %v", once, code, want, err)
			}
			w.Empty("/l")
		})
	}
}
