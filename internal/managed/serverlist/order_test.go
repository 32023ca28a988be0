package serverlist

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// calling is a list of servers that a test calls.
type calling struct {
	List
	up     map[string]bool // which answer
	refuse map[string]bool // which refuse; the others are silent
}

// fail lets a call of a server fail.
func (c *calling) fail(to Server) {
	if !c.refuse[to.Address] {
		time.Sleep(time.Second)
	}
	c.NoteFault(to, errors.New("no connection"))
}

// reach calls servers until one answers, and returns those that it has called.
// proves says that the one has proved to be in touch with its leader.
func (c *calling) reach(t *testing.T, proves bool) (called string) {
	t.Helper()
	for range 20 {
		to, _, err := c.Next(nil, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		called += to.Name + " "
		if !c.up[to.Address] {
			c.fail(to)
			continue
		}
		c.NoteConnected(to)
		c.ForgetFaults()
		if proves {
			c.BeginRound()
		}
		return strings.TrimSpace(called)
	}
	t.Fatalf("nobody answers: %s", called)
	return ""
}

// The order in which servers are called. Names in lower case are given, the
// others are named by the ensemble.
func TestTheOrderOfCalls(t *testing.T) {
	type step struct {
		up     string // which answer; those that were connected to are lost
		refuse string // which refuse; all others are silent
		drops  bool   // the one that answers drops the connection before any proof
		called string
	}
	for name, tt := range map[string]struct {
		given, members, former string
		steps                  []step
	}{
		"in turn": {given: "a b c", steps: []step{
			{up: "a b c", called: "a"}, {up: "a b c", called: "b"}, {up: "a b c", called: "c"}, {up: "a b c", called: "a"},
		}},
		"one that was silent comes last": {given: "a b c", steps: []step{
			{up: "b c", called: "a b"},
			{up: "b c", called: "c"},
			{up: "b c", called: "b"},
			{up: "b c", called: "c"},
			{up: "a", called: "b c a"},
			{up: "a b c", called: "a"}, // the others have not answered
		}},
		"given ones first": {given: "a b", members: "X Y", steps: []step{
			{up: "a b X Y", called: "a"},
			{up: "a b X Y", called: "b"},
			{up: "a b X Y", called: "a"},
			{up: "b X Y", called: "b"},
			{up: "X Y", called: "a b X"},
		}},
		"all given ones are gone": {given: "a b c", members: "X Y", steps: []step{
			{up: "X Y", called: "a b c X"},
			{up: "X Y", called: "Y"},
			{up: "X Y", called: "X"},
			{up: "Y", called: "Y"},
			{up: "a b c Y", called: "X Y"}, // the given ones have not answered since
			{up: "a", called: "Y a"},
			{up: "a X Y", called: "a"},
		}},
		"those that refuse keep their place": {given: "a b c", members: "X Y", steps: []step{
			{up: "a b c X Y", called: "a"},
			{up: "X Y", refuse: "a b c", called: "b c a X"}, // no quorum, or they restart
			{up: "a b X Y", called: "b"},
			{up: "X Y", refuse: "a c", called: "c a b Y"},
			{up: "a c X Y", called: "c"},
			{up: "X Y", refuse: "a b c", called: "a c X"}, // b was silent
			{up: "b", refuse: "a c", called: "a c Y b"},
		}},
		"in an outage all are called in turn": {given: "a b", members: "X", steps: []step{
			{up: "a", called: "a"}, {up: "", called: "b a X b a X b a X b a X b a X b a X b a"},
		}},
		"one that drops hides nobody": {given: "a b", members: "X", steps: []step{
			{up: "a b X", drops: true, called: "a"},
			{up: "a b X", drops: true, called: "b"},
			{up: "a b X", drops: true, called: "X"},
			{up: "a b X", drops: true, called: "a"},
		}},
		"in a restart of the given ones all are called in turn": {given: "a b", members: "X", steps: []step{
			{up: "a", called: "a"}, {up: "", refuse: "a b X", called: "b a X b a X b a X b a X b a X b a X b a"},
		}},
		"many members that are silent do not keep it from the given ones": {given: "a b", members: "X Y Z U V", steps: []step{
			{up: "a", called: "a"},
			{up: "", refuse: "a b", called: "b a X b a Y b a Z b a U b a V b a X b a"},
			{up: "", called: "Y b a Z U b a V b a X b a Y b a Z b a U"},
			{up: "Y", called: "b a V b a X b a Y"},
			{up: "", called: "Y Z U b a V X Y b a Z U V b a X Y Z b a"},
		}},
		"one that drops does not hide those that were silent": {given: "a b c", steps: []step{
			{up: "b c", called: "a b"}, {up: "a b c", drops: true, called: "c"}, {up: "a b c", drops: true, called: "b"}, {up: "a b c", drops: true, called: "a"},
		}},
		"removed members come last": {given: "a b c", members: "X Y", former: "a b", steps: []step{
			{up: "a b X", called: "c X"}, {up: "a b", called: "Y a"},
		}},
		"removed members that answer come before silent ones": {given: "a b c", members: "X Y Z", former: "a b c", steps: []step{
			{up: "a b c", called: "X a"}, {up: "a b c", called: "Y b"}, {up: "a b c", called: "Z c"}, {up: "a b c", called: "a"}, {up: "a b c", called: "b"},
		}},
		"members that were given": {given: "a b", members: "a b", steps: []step{
			{up: "a", called: "a"}, {up: "", called: "b a b a b a b a b a b a b a b a b a b a"},
		}},
	} {
		run(t, name, func(t *testing.T) {
			c := &calling{List: List{names: atOne(tt.given)}}
			c.members = members{names: atOne(tt.members), former: isOne(tt.former)}
			for i, s := range tt.steps {
				c.up, c.refuse = isOne(s.up), isOne(s.refuse)
				got := ""
				if s.up != "" {
					got = c.reach(t, !s.drops)
				} else {
					for range 20 {
						to, _, _ := c.Next(nil, time.Second)
						c.fail(to)
						got += " " + to.Name
					}
				}
				if got = strings.TrimSpace(strings.ReplaceAll(got, ":1", "")); got != s.called {
					t.Fatalf("step %d: called %s, want %s", i+1, got, s.called)
				}
			}
		})
	}
}

func atOne(hosts string) (all []string) {
	for _, h := range strings.Fields(hosts) {
		all = append(all, h+":1")
	}
	return all
}

func isOne(hosts string) map[string]bool {
	is := map[string]bool{}
	for _, a := range atOne(hosts) {
		is[a] = true
	}
	return is
}

// run runs a test in virtual time.
func run(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// A name server that returns other addresses each time does not hide the other
// names, nor the members that the ensemble names.
func TestANameWithOtherAddressesEachTime(t *testing.T) {
	r := &List{names: []string{"a.example.:1", "b:1"}, resolver: &net.Resolver{}, closed: true}
	r.members.names = []string{"10.0.0.9:1"}
	r.known = map[string]*knownName{"b:1": {given: true, addresses: []string{"b:1"}}}
	called := map[string]int{}
	for i := range 40 {
		n := r.knownLocked("a.example.:1")
		n.addresses = []string{fmt.Sprintf("10.1.0.%d:1", i), fmt.Sprintf("10.2.0.%d:1", i)}
		to, _, err := r.Next(nil, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		called[to.Name]++
		r.NoteFault(to, errors.New("refused"))
	}
	if called["b:1"] < 8 || called["10.0.0.9:1"] < 8 || called["a.example.:1"] < 16 {
		t.Errorf("%v", called)
	}
}

// Who is asked to close a session: those that have answered, first.
func TestTheOrderOfCloses(t *testing.T) {
	for range 20 {
		r := &List{names: atOne("a b c d"), members: members{names: atOne("X Y"), former: map[string]bool{"d:1": true}}}
		r.NoteFault(Server{Name: "b:1", Address: "b:1"}, errors.New("refused"))
		r.NoteFault(Server{Name: "Y:1", Address: "Y:1"}, errors.New("refused"))
		var order []string
		for _, s := range r.Find(context.Background(), time.Second) {
			order = append(order, s.Name)
			if s.IsDoubtful() != slices.Contains(r.members.names, s.Name) {
				t.Errorf("%+v", s)
			}
		}
		slices.Sort(order[:2])
		slices.Sort(order[3:5])
		if got := strings.Join(order, " "); got != "a:1 c:1 X:1 b:1 d:1 Y:1" {
			t.Error(got)
		}
	}
}

// A round that members which are silent have ended early counts as one: the
// pause after it comes, and the function for the list is asked.
func TestTheLengthOfARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calling{List: List{names: atOne("a b")}, refuse: isOne("a b")}
		for i := range MostMembers {
			c.members.names = append(c.members.names, fmt.Sprintf("m%d:1", i))
		}
		for attempt := range 12 {
			to, round, err := c.Next(nil, time.Second)
			want := 3 // a, b and a member
			if attempt < want {
				want = 2 + MostMembers
			}
			if round != want || err != nil {
				t.Errorf("attempt %d, of %s: a round of %d, %v", attempt+1, to, round, err)
			}
			c.fail(to)
		}
		c.BeginRound()
		if _, round, _ := c.Next(nil, time.Second); round != 2+MostMembers {
			t.Errorf("a round of %d", round)
		}
	})
}

// What counts as silent: a call that has lasted, and a server of another
// ensemble, however quickly it has answered. A server that the client should
// move to is called as all others are.
func TestWhatCountsAsSilent(t *testing.T) {
	for name, tt := range map[string]struct {
		lasts     time.Duration
		preferred bool
		why       error
		want      bool
	}{
		"it refuses":                    {0, false, errors.New("refused"), false},
		"it refuses, and was preferred": {0, true, errors.New("refused"), false},
		"it is slow":                    {time.Second / 4, false, errors.New("no answer"), true},
		"another ensemble":              {0, false, fmt.Errorf("a: %w", zkerr.NotVouched), true},
	} {
		run(t, name, func(t *testing.T) {
			r := &List{names: atOne("a")}
			time.Sleep(time.Hour)
			if tt.preferred {
				r.preferred = atOne("a")
			}
			to, _, err := r.Next(nil, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(tt.lasts)
			r.NoteFault(to, tt.why)
			if got := r.isSilentLocked(to); got != tt.want {
				t.Error(got)
			}
		})
	}
}
