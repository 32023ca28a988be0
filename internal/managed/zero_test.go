package managed_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Every method of a Client and of a Session can be called on a zero value, on
// one whose client was closed, and on a session that is over. None panics, with
// zero arguments (a nil context included) or with others, and each error says
// why.
func TestNothingPanicsOnWhatWasNeverOpenedOrIsOver(t *testing.T) {
	for range 2 { // all zero values are one: it must keep nothing
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			closed, _ := connect(t, ens)
			ofClosed := session(t, closed)
			must(t, closed.Close())
			other, _ := connect(t, ens)
			expired := session(t, other)
			must(t, ens.ExpireSession(expired.ID()))
			<-expired.Done()
			for name, tt := range map[string]struct {
				value any
				want  error
			}{
				"a zero client":           {&framework.Client{}, framework.ErrClosed},
				"a zero session":          {&framework.Session{}, framework.ErrClosed},
				"a closed client":         {closed, framework.ErrClosed},
				"a closed client's":       {ofClosed, framework.ErrClosed},
				"a session that has died": {expired, framework.ErrSessionLost},
			} {
				callAll(t, name, tt.value, func(_ string, _ int, in reflect.Type) reflect.Value { return reflect.Zero(in) })
				for method, err := range callAll(t, name, tt.value, func(method string, at int, in reflect.Type) reflect.Value { return plausible(t, method, at, in) }) {
					if !errors.Is(err, tt.want) && !slices.Contains([]string{"Close", "Namespace"}, method) {
						t.Errorf("%s: %s: %v, want %v", name, method, err, tt.want)
					}
				}
			}
		})
	}
}

func TestAZeroSessionHasNoDeadline(t *testing.T) {
	if d := new(framework.Session).Deadline(); !d.IsZero() {
		t.Error(d)
	}
}

// callAll calls every exported method of value and returns the errors of those
// that have one. A panic fails the test.
func callAll(t *testing.T, name string, value any, argument func(method string, at int, in reflect.Type) reflect.Value) map[string]error {
	t.Helper()
	failed := map[string]error{}
	v := reflect.ValueOf(value)
	for i := range v.NumMethod() {
		method := v.Type().Method(i).Name
		call := v.Method(i)
		var in []reflect.Value
		for k := range call.Type().NumIn() {
			if call.Type().IsVariadic() && k == call.Type().NumIn()-1 {
				break
			}
			in = append(in, argument(method, k, call.Type().In(k)))
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s: %s panics: %v", name, method, p)
				}
			}()
			out := call.Call(in)
			if n := len(out); n > 0 && out[n-1].Type() == reflect.TypeFor[error]() {
				failed[method], _ = out[n-1].Interface().(error)
			}
		}()
	}
	if len(failed) < 3 {
		t.Errorf("%s: %d methods with an error were found", name, len(failed))
	}
	return failed
}

func plausible(t *testing.T, method string, at int, in reflect.Type) reflect.Value {
	switch in {
	case reflect.TypeFor[context.Context]():
		return reflect.ValueOf(t.Context())
	case reflect.TypeFor[string]():
		if method == "CreateProtected" && at > 1 || method == "CreateInstead" && at == 2 { // the name behind the directory
			return reflect.ValueOf("a")
		}
		return reflect.ValueOf("/a")
	case reflect.TypeFor[time.Duration]():
		return reflect.ValueOf(time.Second)
	case reflect.TypeFor[func(framework.StateChange)]():
		return reflect.ValueOf(func(framework.StateChange) {})
	case reflect.TypeFor[func([]byte, *zk.Stat) ([]byte, error)]():
		return reflect.ValueOf(func(old []byte, _ *zk.Stat) ([]byte, error) { return old, nil })
	case reflect.TypeFor[*zk.Stat]():
		return reflect.ValueOf(&zk.Stat{})
	case reflect.TypeFor[framework.ProtectedBatch]():
		return reflect.ValueOf(framework.ProtectedBatch{Dir: "/a", Name: "b-", N: 1})
	}
	return reflect.Zero(in)
}

// What a multi cannot have is an error that names the operation, nil included.
func TestMultiOfWhatIsNoOperation(t *testing.T) {
	c, err := framework.New("127.0.0.1:1", framework.WithDialer(refuse))
	must(t, err)
	defer c.Close()
	for _, op := range []any{
		nil, 1,
		zk.CreateRequest{Path: "/a"},
		(*zk.CreateRequest)(nil), (*zk.DeleteRequest)(nil), (*zk.SetDataRequest)(nil), (*zk.CheckVersionRequest)(nil),
	} {
		_, err := c.Multi(t.Context(), &zk.CreateRequest{Path: "/a"}, op)
		if err == nil || !strings.Contains(err.Error(), "operation 1: ") || errors.Is(err, zk.ErrNoServer) {
			t.Errorf("%#v: %v", op, err)
		}
	}
}
