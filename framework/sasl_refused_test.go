package framework_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// oneOdd runs a scenario on three members, one of which has an older password
// file.
func oneOdd(t *testing.T, odd int, scenario func(t *testing.T, ens *testutil.Embedded)) {
	t.Helper()
	requiring(t, scenario, testutil.WithSASL(map[string]string{"app": "older"}, odd))
}

// After an outage, whose attempts were counted, the first refusal was taken for
// that of all servers: each call that waited failed.
func TestOneMemberRefusesAfterAnOutage(t *testing.T) {
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOdd(t, i%3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens, newPassword("secret").option())
				for range 4 {
					network.Cut()
					network.Drop()
					time.Sleep(timeout/2 + time.Duration(i)*timeout/12)
					network.Heal()
					_, _, err := c.Get(within(t, time.Minute), "/")
					must(t, err)
				}
			})
		})
	}
}

// A refusal of one member made the pauses of all attempts grow up to a minute,
// if each connection ended soon.
func TestOneMemberRefusesAndTheNetworkFlaps(t *testing.T) {
	oneOdd(t, 0, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, newPassword("secret").option())
		s := session(t, c)
		for range 60 {
			began := time.Now()
			for c.State() != framework.Connected {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took > timeout/3 {
				t.Fatalf("%v without a connection", took)
			}
			time.Sleep(timeout / 10)
			network.Drop()
			time.Sleep(10 * time.Millisecond)
		}
		if session(t, c).ID() != s.ID() {
			t.Error("the session was lost")
		}
	})
}

// countingBegins is a mechanism that counts how often it is asked.
func countingBegins(p *password) (framework.Option, *atomic.Int32) {
	var n atomic.Int32
	return framework.WithSASL(misbehaving{
		SASL:  digestmd5.Func(func() (string, string, error) { return "app", p.now.Load().(string), nil }),
		begin: func(context.Context) error { n.Add(1); return nil },
	}), &n
}

// The pauses of a client that all servers refuse are between half a minute and
// a minute, whatever the number of servers, and the first ones are shorter.
func TestPaceOfARefusedClient(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		option, asked := countingBegins(newPassword("wrong"))
		c, _ := start(t, ens, option)
		time.Sleep(10 * time.Second)
		if n := asked.Load(); n < 5 || n > 10 {
			t.Errorf("%d attempts in the first 10s", n)
		}
		time.Sleep(2 * time.Minute)
		before := asked.Load()
		time.Sleep(10 * time.Hour)
		if n := asked.Load() - before; n < 600 || n > 1200 {
			t.Errorf("%d attempts in ten hours", n)
		}
		if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, framework.ErrAuthFailed) {
			t.Errorf("error %v", err)
		}
	})
}
