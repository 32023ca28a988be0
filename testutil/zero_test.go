package testutil_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The zero value of every exported type can be used without a panic. The
// exception is a member index that does not exist, which panics with a message
// like an index of a slice does.
func TestZeroValues(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	zeros := []any{
		&testutil.Embedded{}, &testutil.ClientNet{}, &testutil.Fault{},
		testutil.Action{},
		testutil.Match{},
		testutil.Request{},
		testutil.SessionInfo{},
		testutil.Stat{},
		testutil.Op(0), testutil.Code(0),
	}
	for _, zero := range zeros {
		v := reflect.ValueOf(zero)
		for i := range v.NumMethod() {
			name, method := fmt.Sprintf("%T.%s", zero, v.Type().Method(i).Name), v.Method(i)
			var args []reflect.Value
			index := false
			for j := range method.Type().NumIn() {
				in := method.Type().In(j)
				index = index || in.Kind() == reflect.Int
				if in == reflect.TypeFor[context.Context]() {
					args = append(args, reflect.ValueOf(canceled))
				} else {
					args = append(args, reflect.Zero(in))
				}
			}
			func() {
				defer func() {
					if r := recover(); r != nil && !(index && strings.Contains(fmt.Sprint(r), "no member 0")) {
						t.Errorf("%s panics: %v", name, r)
					}
				}()
				method.Call(args)
				method.Call(args) // a second call meets what the first one has left
			}()
		}
	}
}

// A network that is closed, or that was never made by NewClientNet, says so.
func TestClosedClientNet(t *testing.T) {
	closed := testutil.NewClientNet("127.0.0.1:1", nil)
	must(t, closed.Close())
	for name, n := range map[string]*testutil.ClientNet{"closed": closed, "zero": {}} {
		if _, err := n.Dial("tcp", "127.0.0.1:1", time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Dial: %v, want net.ErrClosed", name, err)
		}
		if servers, err := n.Listen(); servers != "" || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Listen: %q, %v, want net.ErrClosed", name, servers, err)
		}
	}
}

// Without a dial function the network dials TCP by itself.
func TestClientNetDialsTCP(t *testing.T) {
	e := testutil.Start(t)
	n := testutil.NewClientNet(e.Servers(), nil)
	defer n.Close()
	c := wireClient(t, e.Servers(), n.Dial, 10*time.Second)
	_, err := c.Create("/a", nil, 0, anyACL)
	must(t, err)
}

// The zero Fault is Upon of the zero Match and the zero Action: it counts one
// request and lets it pass.
func TestZeroFault(t *testing.T) {
	var f testutil.Fault
	struck := f.Hit()
	for range 3 {
		if a := f.Control(testutil.Request{Op: testutil.OpCreate}); a != testutil.Pass() {
			t.Errorf("the zero fault does %v", a)
		}
	}
	select {
	case <-struck:
	default:
		t.Error("Struck's channel is open after a request")
	}
	if n := f.Count(); n != 1 {
		t.Errorf("Count is %d, want 1", n)
	}
}

// A nil channel holds a request for good, before the embedded ensemble and on a
// client's network alike; code 0 is a failure, too; nil controls nothing.
func TestActionsOfNothing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		n := e.ClientNet("a")
		e.Control(nil)()
		n.Control(nil)()
		c := wireClient(t, e.Servers(), n.Dial, 10*time.Second)
		for where, control := range map[string]func(func(testutil.Request) testutil.Action) func(){"ensemble": e.Control, "client": n.Control} {
			stop := control(testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Fail(0)).Control)
			if _, err := c.Create("/failed", nil, 0, anyACL); err == nil || e.Exists("/failed") {
				t.Errorf("%s: Fail(0): %v, exists: %t", where, err, e.Exists("/failed"))
			}
			stop()
			for what, hold := range map[string]testutil.Action{"Hold": testutil.Hold(nil), "HoldReply": testutil.HoldReply(nil)} {
				stop := control(testutil.NewFault(testutil.Match{Op: testutil.OpExists}, hold).Control)
				answered := make(chan error, 1)
				go func() {
					_, _, err := c.Exists("/")
					answered <- err
				}()
				select {
				case err := <-answered:
					t.Errorf("%s: %s(nil): answered: %v", where, what, err)
				case <-time.After(time.Second):
				}
				stop()
				n.Drop() // which ends the request that hangs
				<-answered
				time.Sleep(2 * time.Second) // the client connects again
			}
		}
	})
}

// The public operation and error codes are those of the protocol.
func TestCodes(t *testing.T) {
	for op, want := range map[testutil.Op]string{
		testutil.OpCreateSession: "createSession", testutil.OpCloseSession: "closeSession", testutil.OpCreate: "create",
		testutil.OpCreate2: "create2", testutil.OpCreateContainer: "createContainer", testutil.OpCreateTTL: "createTTL",
		testutil.OpDelete: "delete", testutil.OpExists: "exists", testutil.OpGetData: "getData", testutil.OpSetData: "setData",
		testutil.OpGetACL: "getACL", testutil.OpSetACL: "setACL", testutil.OpGetChildren: "getChildren",
		testutil.OpGetChildren2: "getChildren2", testutil.OpSync: "sync", testutil.OpPing: "ping", testutil.OpMulti: "multi",
		testutil.OpMultiRead: "multiRead", testutil.OpAuth: "auth", testutil.OpSetWatches: "setWatches",
		testutil.OpSetWatches2: "setWatches2", testutil.OpAddWatch: "addWatch", testutil.OpCheckWatches: "checkWatches",
		testutil.OpRemoveWatches: "removeWatches", 4711: "op 4711",
	} {
		if got := op.String(); got != want {
			t.Errorf("operation %d is %q, want %q", int32(op), got, want)
		}
	}
	for code, want := range map[testutil.Code]wire.Code{
		testutil.CodeSystemError: wire.SystemError, testutil.CodeConnectionLoss: wire.ConnectionLoss,
		testutil.CodeUnimplemented: wire.Unimplemented, testutil.CodeOperationTimeout: wire.OperationTimeout,
		testutil.CodeNoNode: wire.NoNode, testutil.CodeNoAuth: wire.NoAuth, testutil.CodeBadVersion: wire.BadVersion,
		testutil.CodeNodeExists: wire.NodeExists, testutil.CodeNotEmpty: wire.NotEmpty,
		testutil.CodeSessionExpired: wire.SessionExpired, testutil.CodeAuthFailed: wire.AuthFailed,
		testutil.CodeSessionMoved: wire.SessionMoved, testutil.CodeRequestTimeout: wire.RequestTimeout,
		testutil.CodeQuotaExceeded: wire.QuotaExceeded, testutil.CodeThrottled: wire.Throttled,
	} {
		if int32(code) != int32(want) || code.String() != want.String() {
			t.Errorf("code %d (%v) is %d (%v) in the protocol", int32(code), code, int32(want), want)
		}
	}
}

// A clock rate that is not positive counts as 1.
func TestClockRateOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, testutil.InMemory(), hidden.WithClockRates(func(int64) float64 { return 0 }))
		c := wireClient(t, e.Servers(), e.Dial, 10*time.Second)
		_, err := c.Create("/a", nil, 0, anyACL)
		must(t, err)
		time.Sleep(time.Minute)
		if _, _, err := c.Exists("/a"); err != nil {
			t.Error(err)
		}
	})
}
