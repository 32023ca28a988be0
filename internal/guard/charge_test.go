package guard

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

func guardOf(id int64) message {
	return message{Op: opGuard, ID: id, Password: make([]byte, passwordSize), Timeout: time.Second, Servers: "m:2181"}
}

// TestLimits: a process can fill no guardian's memory.
func TestLimits(t *testing.T) {
	c := newCharge([]string{"m"})
	on := func(m message, files ...int) error { _, err := c.on(m, files, 0); return err }
	if err := on(guardOf(1)); !errors.Is(err, errMessage) {
		t.Errorf("before hello: %v", err)
	}
	if err := on(message{Op: opHello}, 10, 11); err != nil {
		t.Fatal(err)
	}
	for i := range mostSessions {
		if err := on(guardOf(int64(i + 1))); err != nil {
			t.Fatal(err)
		}
	}
	if on(guardOf(1)) != nil || on(guardOf(mostSessions+1)) == nil {
		t.Error("sessions")
	}
	if err := on(message{Op: opOver, ID: 7, Servers: "m:2181", Closed: true}); err != nil || on(guardOf(mostSessions+1)) != nil {
		t.Error("one is over, and another one has no place")
	}
	if on(message{Op: opOver, ID: 9, Servers: "other:2181", Closed: true}) != nil || on(guardOf(mostSessions+2)) == nil {
		t.Error("the end of another ensemble's session with the same id counts")
	}
	for i := range mostCommands {
		if err := on(message{Op: opStarting, Ref: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if on(message{Op: opStarting, Ref: 1}) == nil || on(message{Op: opStarting, Ref: mostCommands + 1}) == nil {
		t.Error("commands")
	}
	if on(message{Op: opGroup, Ref: 1, Group: 5}, 12) != nil || on(message{Op: opGroup, Ref: 1, Group: 5}, 13) == nil || on(message{Op: opGroup, Ref: 999, Group: 5}, 13) == nil {
		t.Error("groups")
	}
	if got := c.held(); !slices.Equal(got, []int{10, 11, 12}) {
		t.Errorf("files: %v", got)
	}
	if unused, err := c.on(message{Op: opEnded, Ref: 1}, nil, 0); err != nil || !slices.Equal(unused, []int{12}) {
		t.Errorf("%v, %v", unused, err)
	}
}

// TestALeftSession is guarded for three timeouts, and a newer connect of it
// guards it again.
func TestALeftSession(t *testing.T) {
	c := newCharge([]string{"m"})
	at := func(now time.Duration, m message, files ...int) int {
		if _, err := c.on(m, files, now); err != nil {
			t.Fatal(err)
		}
		return len(c.sessions)
	}
	at(0, message{Op: opHello}, 1, 2)
	at(time.Second, guardOf(1))
	at(2*time.Second, message{Op: opOver, ID: 1, Servers: "m:2181"})
	at(3*time.Second, message{Op: opOver, ID: 1, Servers: "m:2181"}) // a later word of the same changes nothing
	if at(5*time.Second, message{Op: opUntil}) != 1 || at(5*time.Second+1, message{Op: opUntil}) != 0 {
		t.Error("it is not guarded for three timeouts since the first word")
	}
	at(6*time.Second, guardOf(1))
	at(6*time.Second, message{Op: opOver, ID: 1, Servers: "m:2181"})
	at(7*time.Second, guardOf(1))
	if at(time.Hour, message{Op: opUntil}) != 1 {
		t.Error("it is in use again")
	}
}

// TestANumberThatIsTooLong would be cut off by the kernel: it is another
// group's, or that of all processes.
func TestANumberThatIsTooLong(t *testing.T) {
	for group, ok := range map[int]bool{2: true, 1<<31 - 1: true, 1: false, 1<<32 + 1: false, 1<<31 + 2: false} {
		if _, err := parse(message{Op: opGroup, Ref: 1, Group: group}.packet(), 1); (err == nil) != ok {
			t.Errorf("group %d: %v", group, err)
		}
	}
}

// TestEnsembles: each server that a process names must be one of an ensemble
// that the guardian serves.
func TestEnsembles(t *testing.T) {
	for lists, want := range map[[2]string]bool{
		{"a:2181,b:2181", "b,a,c/app"}:     true,
		{"A:2181", "a"}:                    true,
		{"a:2182", "a"}:                    false,
		{"a:2181,x:2181", "a,b"}:           false,
		{"", "a"}:                          false,
		{"[::1]:2181", "[::1]"}:            true,
		{"a:2181", ""}:                     false,
		{"a:2181, ,b:2181", " a , b/root"}: true,
	} {
		if isPart(lists[0], lists[1]) != want {
			t.Errorf("%q of %q: %v", lists[0], lists[1], !want)
		}
	}
}

// FuzzProcess: whatever a process sends, it does not exceed its limits, names
// no ensemble but those that are served, and each file that came is either held
// or closed.
func FuzzProcess(f *testing.F) {
	add := func(all ...message) {
		var lines []string
		for _, m := range all {
			lines = append(lines, string(m.packet()))
		}
		f.Add(strings.Join(lines, "\n"))
	}
	add(message{Op: opHello, Version: Version}, guardOf(1), message{Op: opOver, ID: 1, Servers: "m:2181"}, message{Op: opUntil, Until: time.Second})
	add(message{Op: opHello, Version: Version}, message{Op: opStarting, Ref: 1}, message{Op: opGroup, Ref: 1, Group: 2}, message{Op: opEnded, Ref: 1})
	add(message{Op: opStatus, Version: Version}, message{Op: opWelcome, Version: Version}, message{Op: opRefused}, message{Op: opLog})
	f.Fuzz(func(t *testing.T, text string) {
		c := newCharge([]string{"m:2181", "other"})
		next := 100
		open := map[int]bool{}
		for _, packet := range strings.Split(text, "\n") {
			var wants struct{ Op string }
			_ = json.Unmarshal([]byte(packet), &wants)
			var files []int
			for range map[string]int{opHello: 2, opGroup: 1}[wants.Op] {
				next++
				files = append(files, next)
				open[next] = true
			}
			m, err := parse([]byte(packet), len(files))
			unused := files
			if err == nil {
				unused, err = c.on(m, files, time.Duration(next)*time.Second)
			}
			for _, fd := range unused {
				if !open[fd] {
					t.Fatalf("descriptor %d is closed twice", fd)
				}
				delete(open, fd)
			}
			if err != nil {
				break
			}
		}
		held := c.held()
		for _, fd := range held {
			if !open[fd] {
				t.Fatalf("descriptor %d is held and closed", fd)
			}
		}
		if len(held) != len(open) {
			t.Fatalf("%d files are held, %d are open", len(held), len(open))
		}
		for k, s := range c.sessions {
			if k.id == 0 || k.servers != s.Servers || len(s.Password) != passwordSize || s.Timeout <= 0 || !isPart(s.Servers, c.ensembles[s.ensemble]) {
				t.Fatalf("%+v", s.DeadSession)
			}
		}
		if len(c.sessions) > mostSessions || len(c.commands) > mostCommands || len(c.sessions) > 0 && !c.hello {
			t.Fatal("a limit is exceeded")
		}
	})
}

var _ framework.Guardian = (*Ward)(nil)
