// This file tests WithServersFunc, in virtual time. The package servers has the
// tests of when the function is called, and of a function that fails.
package managed_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// listOf is a function for the list, whose answer can be replaced.
type listOf struct{ atomic.Value }

func (l *listOf) option() framework.Option {
	return framework.WithServersFunc(func(context.Context) (string, error) { return l.Load().(string), nil })
}

// A client moves when the function has returned a list without its server
// twice, in the same session, and its lease stays.
func TestAClientFollowsAFunction(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		var list listOf
		list.Store(ens.Servers())
		c, _ := connect(t, ens, list.option())
		s, left := session(t, c), c.Server()
		lost := lossOf(t, s)
		time.Sleep(time.Second)
		for _, one := range c.Servers() {
			if one.From != framework.ServerGiven { // its answer was the list of New
				t.Errorf("%+v", one)
			}
		}
		list.Store(without(ens, c))
		time.Sleep(3 * time.Minute)
		if at := c.Server(); at == left || at == "" {
			t.Errorf("the client is at %q", at)
		}
		for _, one := range c.Servers() {
			if one.From != framework.ServerFromFunction {
				t.Errorf("%+v", one)
			}
		}
		if len(lost) > 0 || session(t, c).ID() != s.ID() {
			t.Error("the session was lost")
		}
		setServers(t, c, membersOf(ens, 0))
		list.Store(membersOf(ens, 1))
		time.Sleep(time.Hour)
		if at := c.Server(); at != membersOf(ens, 0) {
			t.Errorf("SetServers has not turned the function off: the client is at %s", at)
		}
	})
}

// All servers were replaced while the client had no connection: the function
// says where they are. A client may even begin with a list that is out of date.
func TestAFunctionInAnOutage(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		var list listOf
		list.Store("gone:2181")
		network := ens.ClientNet("outage")
		c, err := framework.New("nowhere:2181", framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial), list.option())
		must(t, err)
		defer c.Close()
		time.Sleep(10 * time.Minute)
		list.Store(ens.Servers())
		must(t, c.WaitConnected(within(t, 90*time.Second)))
	})
}

// A function that returns something else each time does not move a client.
func TestAFunctionThatReturnsRandomServers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		var turn atomic.Int64
		c, _ := connect(t, ens, framework.WithServersFunc(func(context.Context) (string, error) {
			return membersOf(ens, int(turn.Add(1)%3)), nil
		}))
		time.Sleep(time.Minute) // the first one may have come before the connection
		states := record(c)
		time.Sleep(time.Hour)
		if got := states.states(); got != "CONNECTED " {
			t.Errorf("%s after %d answers", got, turn.Load())
		}
	})
}

// The same, drawn each time: now and then the same ones come twice, and the
// client moves to them. It keeps its session and what is held in it.
func TestAFunctionThatReturnsAnySubset(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		var moves atomic.Int32
		c, _ := connect(t, ens,
			framework.WithObserver(framework.Observer{Moved: func(framework.Move) { moves.Add(1) }}),
			framework.WithServersFunc(func(context.Context) (string, error) {
				return membersOf(ens, rand.Perm(3)[:1+rand.IntN(3)]...), nil
			}))
		s := session(t, c)
		release, err := s.Hold(func(err error) { t.Errorf("lost: %v", err) })
		must(t, err)
		time.Sleep(2 * time.Hour)
		if s.Err() != nil || moves.Load() == 0 || moves.Load() > 120 {
			t.Errorf("%v, %d moves", s.Err(), moves.Load())
		}
		release()
	})
}

// What a function must not return: the list stays, and a line says why.
func TestAFunctionWithAWrongList(t *testing.T) {
	for wrong, want := range map[string]string{
		"":             "no server in the list",
		"h1:port":      "port",
		"h1/other":     `must stay "/app"`,
		"h1/app,h2":    "comma",
		"h1,h2 h3/app": "host name",
	} {
		t.Run(want, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				provision(t, ens, 0)
				var list listOf
				list.Store(wrong)
				core, logged := observer.New(zapcore.WarnLevel)
				c, err := framework.New(ens.Servers()+"/app", framework.WithSessionTimeout(timeout), framework.WithDialer(ens.Dial),
					framework.WithLogger(zap.New(core)), list.option())
				must(t, err)
				defer c.Close()
				time.Sleep(5 * time.Minute)
				lines := logged.FilterMessage("the function for the list of servers has failed").All()
				if len(lines) < 3 || !strings.Contains(lines[0].ContextMap()["error"].(string), want) {
					t.Errorf("%v", lines)
				}
				if all := c.Servers(); len(all) != 1 || all[0].Connected != ens.Servers() || all[0].From != framework.ServerGiven {
					t.Errorf("%+v", all)
				}
				list.Store("other:2181," + ens.Servers()) // without the chroot
				time.Sleep(5 * time.Minute)
				if all := c.Servers(); len(all) != 2 || all[0].From != framework.ServerFromFunction {
					t.Errorf("%+v", all)
				}
			})
		})
	}
}

func TestAFunctionThatIsNil(t *testing.T) {
	if _, err := framework.New("h1", framework.WithServersFunc(nil)); err == nil || !strings.Contains(err.Error(), "servers function: nil") {
		t.Error(err)
	}
}
