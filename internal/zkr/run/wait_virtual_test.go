package run

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/internal/zkr/live"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// TestWaitSaysForWhom: a wait says on stderr for whom it waits, a candidate
// says who leads, and all of them say that no server answers. A signal ends the
// wait.
func TestWaitSaysForWhom(t *testing.T) {
	permit := func(t *testing.T, w *bubble.World) *virtual {
		command := &semaphoreCommand{lockCommand: *within(w, parsed(t)), most: 1, permits: 1}
		return startVirtual(func(ctx context.Context, in *cli.Process) error { return command.run(ctx, in, command.permitsAt) })
	}
	candidate := func(t *testing.T, w *bubble.World) *virtual {
		command := &electCommand{leaseCommand: within(w, parsed(t)).leaseCommand, id: "second", layout: live.ElectionLayout()}
		command.command = []string{"true"}
		return startVirtual(command.run)
	}
	data := recipes.WithData((&leaseCommand{}).data())
	const holder = `by \S+ pid \d+: zkr \(session 0x[0-9a-f]+, joined \S+ ago\), 1 waiting\n`
	for name, test := range map[string]struct {
		held  func(*framework.Client) (recipes.Acquirer, error)
		start func(*testing.T, *bubble.World) *virtual
		says  string
		code  int // at SIGTERM
	}{
		"lock": {
			func(c *framework.Client) (recipes.Acquirer, error) { return locks.NewMutex(c, "/l", data) },
			func(t *testing.T, w *bubble.World) *virtual { return lockVirtual(t, w) },
			`^zkr: /l: waiting: held ` + holder, 143,
		},
		"semaphore": {
			func(c *framework.Client) (recipes.Acquirer, error) {
				s, err := semaphore.New(c, "/l", 1, data)
				return s.Permits(1), err
			},
			permit, `^zkr: /l: waiting: held ` + holder, 143,
		},
		"elect": {
			func(c *framework.Client) (recipes.Acquirer, error) {
				return leader.New(c, "/l", leader.WithID("first"))
			},
			candidate, `^zkr: /l: not elected yet: led by first \(session 0x[0-9a-f]+, joined \S+ ago\), 1 waiting\n`, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				a, err := test.held(w.Connect("holder"))
				if err != nil {
					t.Fatal(err)
				}
				lease := bubble.Acquire(t, t.Context(), a)
				v := test.start(t, w)
				v.errs.prints(t, test.says)
				if err := w.Pause(0); err != nil {
					t.Fatal(err)
				}
				v.errs.prints(t, "not connected, no server answers: ")
				if err := w.Resume(0); err != nil {
					t.Fatal(err)
				}
				v.errs.prints(t, "zkr: connected again\n")
				v.in.Signals.Arrived <- syscall.SIGTERM
				if code, err := v.end(t); code != test.code || v.out.String() != "" {
					t.Errorf("exit code %d, %v; it printed %q", code, err, v.out.String())
				}
				_ = lease.Release(t.Context()) // it may have been lost
			})
		})
	}
}

// TestNoWaitSaysNothing: nothing is said about a lock that is granted at once.
func TestNoWaitSaysNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		v := lockVirtual(t, w)
		time.Sleep(2 * cli.AWhile)
		v.in.Signals.Arrived <- syscall.SIGTERM
		if code, err := v.end(t); code != 0 || v.errs.String() != "" {
			t.Errorf("exit code %d, %v; it said %q", code, err, v.errs.String())
		}
		w.Empty("/l")
	})
}

// TestWaitForTheFirstConnection: zkr says that it waits for a server.
func TestWaitForTheFirstConnection(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		if err := w.Stop(0); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		v := lockVirtual(t, w)
		v.errs.prints(t, "zkr: /l: no server of "+w.Servers()+" answers yet\n")
		if took := time.Since(began); took < cli.AWhile || took > 2*cli.AWhile {
			t.Errorf("it says so after %v", took)
		}
		if code, err := v.end(t); code != cli.ExitNoEnsemble || time.Since(began) > 11*time.Second {
			t.Errorf("exit code %d after %v: %v", code, time.Since(began), err)
		}
	})
}

// TestWaitThatNobodyAnswers: if the ensemble does not answer when the wait is
// over, the exit code does not say that the lock is busy, and zkr ends although
// no answer ever comes.
func TestWaitThatNobodyAnswers(t *testing.T) {
	for _, paused := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			m, err := locks.NewMutex(w.Connect("holder"), "/l")
			if err != nil {
				t.Fatal(err)
			}
			bubble.Acquire(t, t.Context(), m)
			v := lockVirtual(t, w, "--wait", "5s", "-E", "99")
			w.InLine("/l", 2)
			if paused {
				if err := w.Pause(0); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			code, err := v.end(t)
			switch took := time.Since(began); {
			case !paused && (code != 99 || !strings.Contains(err.Error(), "timed out after 5s: held by ")):
				t.Errorf("exit code %d: %v", code, err)
			case paused && (code != cli.ExitNoEnsemble || !strings.Contains(err.Error(), "timed out after 5s") || !strings.HasSuffix(err.Error(), ": no server answers")):
				t.Errorf("without an answer: exit code %d: %v", code, err)
			case took > 5*time.Second+cli.LookTimeout+5*time.Second: // the client's close waits for some seconds
				t.Errorf("it ended after %v", took)
			}
			if paused {
				if err := w.Resume(0); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestWaitIncludesTheConnection: --wait limits the wait for a first connection
// as well. The connect timeout was added to it.
func TestWaitIncludesTheConnection(t *testing.T) {
	const wait = time.Second
	for verb, start := range map[string]func(*testing.T, *bubble.World) *virtual{
		"lock": func(t *testing.T, w *bubble.World) *virtual { return lockVirtual(t, w, "--wait", wait.String()) },
		"barrier": func(t *testing.T, w *bubble.World) *virtual {
			b := &barrierCommand{jobCommand: within(w, parsed(t)).jobCommand, members: 2, wait: wait}
			return startVirtual(b.run)
		},
		"join": func(t *testing.T, w *bubble.World) *virtual {
			j := &joinCommand{jobCommand: within(w, parsed(t)).jobCommand, layout: cli.GroupLayout(), group: "/l", id: "a", wait: wait}
			return startVirtual(j.run)
		},
	} {
		for _, refused := range []bool{true, false} {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				end := w.Pause
				if refused {
					end = w.Stop
				}
				if err := end(0); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				code, err := start(t, w).end(t)
				if code != cli.ExitNoEnsemble || !strings.Contains(err.Error(), "timed out after 1s") {
					t.Errorf("%s, refused %v: exit code %d: %v", verb, refused, code, err)
				}
				if took := time.Since(began); took > wait+5*time.Second { // the client closes
					t.Errorf("%s, refused %v: it took %v", verb, refused, took)
				}
				if !refused {
					_ = w.Resume(0)
				}
			})
		}
	}
}
