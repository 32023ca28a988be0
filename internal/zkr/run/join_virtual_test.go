package run

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const memberPath = "/g/a"

// service is a command that notes the signals it gets, each with whether its
// znode was there. It ends when the test says so.
type service struct {
	w       *bubble.World
	started chan []string // its environment
	heard   chan string
	job     *job
}

func (s *service) run(_ string, _, env []string) (*job, error) {
	s.started <- env
	return s.job, nil
}

func (s *service) end(code int) {
	s.job.code = code
	close(s.job.ended)
}

// joinVirtual starts zkr join /g --id a with these flags, through
// w.ClientNet("zkr"). With a command, if that is not nil.
func joinVirtual(t *testing.T, w *bubble.World, servers string, command *service, flags ...string) *virtual {
	t.Helper()
	to := &cli.Ensemble{SessionTimeout: framework.DefaultSessionTimeout, Servers: servers, Dial: w.ClientNet("zkr").Dial, ConnectTimeout: 10 * time.Second}
	j := &joinCommand{jobCommand: jobCommand{to: to}, layout: cli.GroupLayout()}
	cmd := &cobra.Command{Use: "join", Args: j.parse, RunE: func(*cobra.Command, []string) error { return nil }}
	j.addFlags(cmd)
	j.flagsOfMember(cmd)
	args := append(flags, "--id", "a", "/g")
	if command != nil {
		j.start = command.run
		args = append(args, "--", "true")
		command.w, command.started, command.heard = w, make(chan []string, 1), make(chan string, 10)
		command.job = &job{ended: make(chan struct{}), signal: func(sig os.Signal) error {
			text := sig.String()
			if !w.Exists(memberPath) {
				text += ", without its znode"
			}
			command.heard <- text
			return nil
		}}
	}
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return startVirtual(j.run)
}

func memberStands(t *testing.T, w *bubble.World) {
	t.Helper()
	bubble.AwaitTrue(t, "the member stands", func() bool { return w.Exists(memberPath) })
}

// another returns a client that has the znode.
func another(t *testing.T, w *bubble.World, data string) *framework.Client {
	t.Helper()
	c := w.Connect("another")
	if _, err := presence.Announce(t.Context(), c, memberPath, []byte(data)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Without a command zkr prints the path once the znode stands, keeps it over an
// expired session, and removes it at its end.
func TestJoinWithoutCommand(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		v := joinVirtual(t, w, w.Servers(), nil, "--data", "10.0.0.7")
		v.out.prints(t, "^/g/a\n$")
		g, err := presence.NewGroup(w.Connect("reader"), "/g")
		if err != nil {
			t.Fatal(err)
		}
		all, err := g.Members(t.Context())
		if err != nil || len(all) != 1 || all[0].ID != "a" || string(all[0].Data) != "10.0.0.7" {
			t.Errorf("the members are %+v, %v", all, err)
		}
		if err := w.ExpireSession(all[0].Session); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * bubble.Timeout)
		stat, found := w.Stat(memberPath)
		if !found || stat.EphemeralOwner == all[0].Session {
			t.Errorf("after the expiry: %+v", stat)
		}
		v.in.Signals.Arrived <- syscall.SIGHUP
		if code, err := v.end(t); code != 0 || v.out.String() != "/g/a\n" {
			t.Errorf("exit code %d, %v; it printed %q", code, err, v.out.String())
		}
		w.NothingLeft("/g")
	})
}

// In each layout zkr is the member that others see, also in the next session,
// and beside another one of that id where the layout has several.
func TestJoinInALayout(t *testing.T) {
	for name, tt := range map[string]struct {
		layout  presence.Layout
		pattern string
		data    string
	}{
		"member":        {presence.LayoutMember, `^/g/a\n$`, "10.0.0.7"},
		"protected":     {presence.LayoutProtected, `^/g/_c_[0-9a-f-]{36}-a\n$`, "10.0.0.7"},
		"party":         {presence.LayoutParty, `^/g/[0-9a-f]{32}__party__\n$`, ""},
		"shallow-party": {presence.LayoutShallowParty, `^/g/[0-9a-f]{32}-a\n$`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				g, err := presence.NewGroup(w.Connect("reader"), "/g", presence.WithLayout(tt.layout))
				if err != nil {
					t.Fatal(err)
				}
				others := 0
				if tt.layout != presence.LayoutMember {
					if _, err := g.Join(t.Context(), "a", nil); err != nil {
						t.Fatal(err)
					}
					others++
				}
				flags := []string{"--layout", name}
				if tt.data != "" {
					flags = append(flags, "--data", tt.data)
				}
				v := joinVirtual(t, w, w.Servers(), nil, flags...)
				v.out.prints(t, tt.pattern)
				path := strings.TrimSpace(v.out.String())
				owner := int64(0)
				for range 2 {
					all, err := g.Members(t.Context())
					i := slices.IndexFunc(all, func(m presence.Member) bool { return m.Path == path })
					if err != nil || len(all) != others+1 || i < 0 {
						t.Fatalf("%s is not in %+v, %v", path, all, err)
					}
					want := tt.data
					if want == "" {
						want = "a"
					}
					if all[i].ID != "a" || string(all[i].Data) != want || all[i].Session == owner {
						t.Errorf("the member is %+v", all[i])
					}
					owner = all[i].Session
					if err := w.ExpireSession(owner); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * bubble.Timeout)
				}
				v.in.Signals.Arrived <- syscall.SIGTERM
				if code, err := v.end(t); code != 0 || w.Exists(path) {
					t.Errorf("exit code %d, %v; the znode is there: %t", code, err, w.Exists(path))
				}
			})
		})
	}
}

// --json prints each change, and a reader that does not read delays nothing.
func TestJoinAsJSON(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		v := joinVirtual(t, w, w.Servers(), nil, "--json")
		v.out.prints(t, "standing")
		w.ClientNet("zkr").Drop()
		w.ClientNet("zkr").Cut()
		v.out.prints(t, "suspended")
		v.errs.prints(t, "zkr: not connected, no server answers: /g/a: the session may expire\n")
		w.ClientNet("zkr").Heal()
		bubble.AwaitTrue(t, "it stands again", func() bool { return strings.Count(v.out.String(), "standing") == 2 })
		if err := w.Connect("operator").Delete(t.Context(), memberPath, -1); err != nil {
			t.Fatal(err)
		}
		bubble.AwaitTrue(t, "it stands for the third time", func() bool { return strings.Count(v.out.String(), "standing") == 3 })
		v.in.Signals.Arrived <- syscall.SIGTERM
		if code, err := v.end(t); code != 0 {
			t.Errorf("exit code %d, %v", code, err)
		}
		var states []string
		for text := range strings.Lines(v.out.String()) {
			var line joined
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.Znode != memberPath || line.Time.IsZero() {
				t.Errorf("%q: %v", text, err)
			}
			if has := strings.HasPrefix(line.Session, "0x"); has != (line.State != "pending") || line.Error != "" && line.State != "pending" {
				t.Errorf("%q", text)
			}
			states = append(states, line.State)
		}
		if got := strings.Join(states, " "); got != "standing suspended standing pending standing" {
			t.Errorf("the states are %s", got)
		}
	})
}

// SIGTERM and SIGINT reach the command when the znode is gone, others at once.
// Its end ends zkr, with its exit code.
func TestJoinSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			var s service
			w.Latency(10 * time.Millisecond)
			v := joinVirtual(t, w, w.Servers(), &s)
			bubble.Await(t, "the command starts", s.started)
			if !w.Exists(memberPath) {
				t.Error("the command has started without its znode")
			}
			v.in.Signals.Arrived <- syscall.SIGHUP
			if got := bubble.Await(t, "SIGHUP", s.heard); got != syscall.SIGHUP.String() {
				t.Errorf("heard %q", got)
			}
			v.in.Signals.Arrived <- sig
			v.in.Signals.Arrived <- syscall.SIGQUIT
			if got := bubble.Await(t, "SIGQUIT", s.heard); got != syscall.SIGQUIT.String() {
				t.Errorf("while the znode is removed: %q", got)
			}
			if got := bubble.Await(t, "the signal", s.heard); got != sig.String()+", without its znode" {
				t.Errorf("heard %q", got)
			}
			time.Sleep(time.Hour) // it ignores the signal
			if w.Exists(memberPath) || len(s.heard) > 0 {
				t.Errorf("the znode is back, or %d more signals", len(s.heard))
			}
			v.in.Signals.Arrived <- sig
			if got := bubble.Await(t, "the second signal", s.heard); got != sig.String()+", without its znode" {
				t.Errorf("heard %q", got)
			}
			s.end(3)
			if code, err := v.end(t); code != 3 || v.out.String()+v.errs.String() != "" {
				t.Errorf("exit code %d, %v; it printed %q and %q", code, err, v.out.String(), v.errs.String())
			}
			w.NothingLeft("/g")
		})
	}
}

// While no server answers, the command hears of the signal after the time for
// the removal, or of both at a second one.
func TestJoinSignalsWithoutAnswer(t *testing.T) {
	for _, twice := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			var s service
			v := joinVirtual(t, w, w.Servers(), &s)
			bubble.Await(t, "the command starts", s.started)
			w.ClientNet("zkr").Cut()
			began := time.Now()
			v.in.Signals.Arrived <- syscall.SIGTERM
			if twice {
				time.Sleep(time.Second)
				v.in.Signals.Arrived <- syscall.SIGTERM
				bubble.Await(t, "the first signal", s.heard)
			}
			bubble.Await(t, "the last signal", s.heard)
			if took := time.Since(began); twice && took != time.Second || !twice && took != removalTime {
				t.Errorf("twice %v: the signal was passed after %v", twice, took)
			}
			if !twice {
				v.errs.prints(t, `zkr: /g/a: close /g/a: timed out|\(it ends with the session\)`)
			}
			w.ClientNet("zkr").Heal()
			bubble.AwaitTrue(t, "it is removed while the command ends", func() bool { return !w.Exists(memberPath) })
			s.end(0)
			if code, err := v.end(t); code != 0 || len(s.heard) > 0 {
				t.Errorf("exit code %d, %v; %d more signals", code, err, len(s.heard))
			}
		})
	}
}

// The command goes on whatever happens to its znode: no connection, an expired
// session, a znode that was deleted, a name that another session has. zkr says
// why the znode does not stand, and makes it again.
func TestJoinGoesOn(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var s service
		v := joinVirtual(t, w, w.Servers(), &s)
		bubble.Await(t, "the command starts", s.started)
		operator := w.Connect("operator")
		if err := operator.Delete(t.Context(), memberPath, -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !w.Exists(memberPath) {
			t.Error("a second after its end the znode was not made again")
		}
		w.ClientNet("zkr").Cut()
		time.Sleep(2 * bubble.Timeout)
		if w.Exists(memberPath) {
			t.Error("the session has not expired")
		}
		other := another(t, w, "other")
		w.ClientNet("zkr").Heal()
		v.errs.prints(t, `zkr: /g/a: session 0x[0-9a-f]+ has the name: other\n`)
		owned, _ := w.Stat(memberPath)
		time.Sleep(time.Hour)
		if stat, _ := w.Stat(memberPath); stat != owned {
			t.Errorf("the other's znode was touched: %+v, %+v", stat, owned)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		v.errs.prints(t, "zkr: /g/a: stands again\n")
		if n := strings.Count(v.errs.String(), "has the name"); n != 1 || len(s.heard) > 0 {
			t.Errorf("it said %q, and the command heard %d signals", v.errs.String(), len(s.heard))
		}
		s.end(0)
		if code, err := v.end(t); code != 0 {
			t.Errorf("exit code %d, %v", code, err)
		}
		w.NothingLeft("/g")
	})
}

// While another session has the name there is nothing to remove: the command
// hears of the signal at once, and the other's znode stays.
func TestJoinEndsWhileTaken(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var s service
		v := joinVirtual(t, w, w.Servers(), &s)
		bubble.Await(t, "the command starts", s.started)
		w.ClientNet("zkr").Cut()
		time.Sleep(2 * bubble.Timeout)
		other := another(t, w, "other")
		owned, _ := w.Stat(memberPath)
		w.ClientNet("zkr").Heal()
		v.errs.prints(t, " has the name: other\n")
		began := time.Now()
		v.in.Signals.Arrived <- syscall.SIGTERM
		bubble.Await(t, "the signal", s.heard)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the signal was passed after %v", took)
		}
		s.end(0)
		if code, err := v.end(t); code != 0 {
			t.Errorf("exit code %d, %v", code, err)
		}
		if stat, _ := w.Stat(memberPath); stat != owned {
			t.Errorf("the other's znode was touched: %+v, %+v", stat, owned)
		}
		_ = other.Close()
	})
}

// A name that another session has is waited for, and said on stderr. --wait
// limits that, and a signal ends it; then nothing was started, and nothing is
// left.
func TestJoinWaits(t *testing.T) {
	const says = `zkr: /g/a: session 0x[0-9a-f]+ has the name: "other\\x1b"\n`
	for name, test := range map[string]struct {
		happens func(t *testing.T, w *bubble.World, v *virtual, other *framework.Client)
		code    int
		took    time.Duration
		text    string
	}{
		"it is taken":    {func(*testing.T, *bubble.World, *virtual, *framework.Client) {}, 111, 30 * time.Second, "timed out after 30s (there is a znode of session 0x"},
		"nobody answers": {func(t *testing.T, w *bubble.World, _ *virtual, _ *framework.Client) { w.ClientNet("zkr").Cut() }, 113, 30*time.Second + cli.LookTimeout, ": no server answers"},
		"a signal": {func(_ *testing.T, _ *bubble.World, v *virtual, _ *framework.Client) {
			v.in.Signals.Arrived <- syscall.SIGTERM
		}, 143, 2 * time.Second, "ended by signal"},
		"the other's end": {func(t *testing.T, _ *bubble.World, _ *virtual, other *framework.Client) { _ = other.Close() }, 0, 2 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				other := another(t, w, "other\x1b")
				var s service
				began := time.Now()
				v := joinVirtual(t, w, w.Servers(), &s, "--wait", "30s")
				v.errs.prints(t, says)
				time.Sleep(time.Until(began.Add(2 * time.Second)))
				test.happens(t, w, v, other)
				if test.code == 0 {
					bubble.Await(t, "the command starts", s.started)
					if took := time.Since(began); took < test.took || took > test.took+100*time.Millisecond {
						t.Errorf("it starts after %v", took)
					}
					s.end(0)
				}
				code, err := v.end(t)
				if took := time.Since(began); code != test.code || test.code != 0 && (took < test.took || took > test.took+5*time.Second || !strings.Contains(cli.Plain(err), test.text)) {
					t.Errorf("exit code %d after %v: %v", code, took, err)
				}
				if len(s.started) > 0 {
					t.Error("the command was started")
				}
				w.ClientNet("zkr").Heal()
				_ = other.Close()
				time.Sleep(2 * bubble.Timeout)
				w.NothingLeft("/g")
			})
		})
	}
}

// What no wait would mend ends zkr before it has started the command.
func TestJoinRefused(t *testing.T) {
	for name, test := range map[string]struct {
		before  func(t *testing.T, c *framework.Client) error
		servers string // the chroot
		flags   []string
		want    error
	}{
		"no right": {func(t *testing.T, c *framework.Client) error {
			_, err := c.Create(t.Context(), "/g", nil, 0, zk.WorldACL(zk.PermRead)...)
			return err
		}, "", nil, zk.ErrNoAuth},
		"an ephemeral parent": {func(t *testing.T, c *framework.Client) error {
			_, err := c.Create(t.Context(), "/g", nil, zk.FlagEphemeral)
			return err
		}, "", nil, zk.ErrNoChildrenForEphemerals},
		"too much data": {nil, "", []string{"--data", strings.Repeat("x", 2<<20)}, framework.ErrTooLarge},
		"no chroot":     {nil, "/app", nil, zk.ErrNoNode},
		"a wrong ACL":   {nil, "", []string{"--acl", "digest:nobody:r"}, zk.ErrInvalidACL},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				if test.before != nil {
					if err := test.before(t, w.Connect("before")); err != nil {
						t.Fatal(err)
					}
				}
				var s service
				began := time.Now()
				v := joinVirtual(t, w, w.Servers()+test.servers, &s, test.flags...)
				code, err := v.end(t)
				if code != cli.ExitFailed || !errors.Is(err, test.want) || time.Since(began) > time.Second {
					t.Errorf("exit code %d after %v: %v", code, time.Since(began), err)
				}
				if len(s.started) > 0 || slices.Contains(w.Children("/"), "app") {
					t.Error("the command was started, or the chroot created")
				}
			})
		})
	}
}

// A command that cannot be started has no znode.
func TestJoinCannotStart(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		to := &cli.Ensemble{SessionTimeout: framework.DefaultSessionTimeout, Servers: w.Servers(), Dial: w.Dial, ConnectTimeout: 10 * time.Second}
		j := &joinCommand{jobCommand: jobCommand{to: to, paths: []string{memberPath}, command: []string{"no"}}, layout: cli.GroupLayout(), group: "/g", id: "a"}
		j.start = func(string, []string, []string) (*job, error) { return nil, os.ErrNotExist }
		v := startVirtual(func(ctx context.Context, in *cli.Process) error { return j.run(ctx, in) })
		if code, err := v.end(t); code != cli.ExitNotFound {
			t.Errorf("exit code %d, %v", code, err)
		}
		w.NothingLeft("/g")
	})
}

// Every answer to its create may be lost: the znode stands all the same.
func TestJoinWithoutAnAnswer(t *testing.T) {
	for name, action := range map[string]testutil.Action{"lost before": testutil.DropBefore(), "lost after": testutil.DropAfter()} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				hits := w.Once(testutil.OpCreate, memberPath, action)
				v := joinVirtual(t, w, w.Servers(), nil)
				v.out.prints(t, "^/g/a\n$")
				memberStands(t, w)
				v.in.Signals.Arrived <- syscall.SIGINT
				if code, err := v.end(t); code != 0 || hits.Load() != 1 {
					t.Errorf("exit code %d, %v; %d answers lost", code, err, hits.Load())
				}
				synctest.Wait()
				w.NothingLeft("/g")
			})
		})
	}
}
