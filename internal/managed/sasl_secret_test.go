package managed_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Neither the log, nor an error, nor a state has a password: not SASL's, not
// WithAuth's, not the session's. The server accepts, refuses, lies and repeats
// what it was sent.
func TestNoSecretIsTold(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		core, logged := observer.New(zap.DebugLevel)
		p := &password{}
		p.now.Store("secret")
		p.SASL = digestmd5.Func(func() (string, string, error) { return "app", p.now.Load().(string), nil })
		var mu sync.Mutex
		secrets := map[string]bool{"secret": true, "hunter2": true, "opensesame": true, digestOf("me:hunter2"): true}
		lie := ""
		dial := tamper.Wrap(ens.ClientNet("told").Dial, func(a tamper.Answer) tamper.Instead {
			mu.Lock()
			defer mu.Unlock()
			var answer wire.ConnectResponse
			if a.Op == wire.OpCreateSession && wire.Unmarshal(a.Frame[4:], &answer) == nil && answer.SessionID != 0 {
				for _, form := range []string{"%s", "%x", "%v", "%q"} {
					secrets[fmt.Sprintf(form, answer.Password)] = true
				}
				secrets[base64.StdEncoding.EncodeToString(answer.Password)] = true
			}
			if lie == "rspauth" && bytes.Contains(a.Frame, []byte("rspauth=")) {
				a.Frame[len(a.Frame)-1] ^= 1
			}
			if lie == "cut" && a.Op == wire.OpSASL {
				return tamper.Instead{Frame: a.Frame[:len(a.Frame)-3], HangUp: true}
			}
			return tamper.Pass(a)
		})
		lies := func(text string) { mu.Lock(); lie = text; mu.Unlock() }
		network := ens.ClientNet("told")
		c, _ := start(t, ens, framework.WithSASL(p), framework.WithDialer(dial), framework.WithLogger(zap.New(core)),
			framework.WithAuth("digest", []byte("me:hunter2")))
		r := record(c)
		said := ""
		ask := func() {
			_, _, err := c.Get(within(t, timeout/2), "/")
			said += fmt.Sprintf("%v %+v\n", err, err)
		}
		ask()
		for _, each := range []string{"rspauth", "cut", ""} {
			lies(each)
			network.Drop()
			time.Sleep(timeout)
			ask()
		}
		p.now.Store("opensesame")
		network.Drop()
		time.Sleep(3 * timeout)
		ask()
		p.now.Store("secret")
		awaitConnected(t, c)
		said += fmt.Sprintf("%v", c.Close())
		for _, change := range r.all() {
			said += fmt.Sprintf("%+v\n", change)
		}
		for _, line := range logged.All() {
			said += fmt.Sprintf("%s %v\n", line.Message, line.ContextMap())
		}
		if strings.Count(said, "\n") < 10 || !strings.Contains(said, "does not accept") || !strings.Contains(said, "does not prove") {
			t.Errorf("too little was said:\n%s", said)
		}
		for secret := range secrets {
			if strings.Contains(said, secret) {
				t.Errorf("%q is in\n%s", secret, said)
			}
		}
	})
}

// digestOf is the hash that WithAuth's scheme digest stands for.
func digestOf(credentials string) string {
	_, hash, _ := strings.Cut(testutil.Digest(credentials), ":")
	return hash
}
