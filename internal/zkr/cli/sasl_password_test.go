package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var saslUsers = map[string]string{"app": "secret"}

func passwordFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// usingPassword returns a client that is made of the flags, and its network.
func usingPassword(t *testing.T, w *bubble.World, file string) (*framework.Client, *bubble.Net) {
	t.Helper()
	s := &saslFlags{mechanism: "digest-md5", user: "app", passwordFile: file}
	opt, err := s.option(nil)
	if err != nil {
		t.Fatal(err)
	}
	network := w.ClientNet("zkr")
	c, err := framework.New(w.Servers(), opt, framework.WithDialer(network.Dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, network
}

// Each variable stands for its flag. A refusal ends the command at once,
// although --connect-timeout has not passed.
func TestSASLVariables(t *testing.T) {
	e := testutil.Start(t, testutil.WithSASL(saslUsers), testutil.WithEnforcedAuth("sasl"))
	t.Setenv("ZKR_SASL", "digest-md5")
	t.Setenv("ZKR_SASL_USER", "app")
	t.Setenv("ZKR_SASL_PASSWORD_FILE", passwordFile(t, "secret\r\n"))
	if code, text := zkrtest.Zkr(e, "ls", "/"); code != 0 || !strings.Contains(text, "zookeeper") {
		t.Errorf("exit code %d, %s", code, text)
	}
	t.Setenv("ZKR_SASL_PASSWORD_FILE", passwordFile(t, "other"))
	began := time.Now()
	code, text := zkrtest.Zkr(e, "ls", "/")
	if took := time.Since(began); code != ExitFailed || !strings.Contains(text, "authentication") || strings.Count(text, "\n") != 1 || took > 20*time.Second {
		t.Errorf("after %v exit code %d, %s", took, code, text)
	}
	t.Setenv("ZKR_SASL", "")
	if code, text := zkrtest.Zkr(e, "ls", "/"); code != ExitUsage || !strings.Contains(text, "--sasl") {
		t.Errorf("without a mechanism: exit code %d, %s", code, text)
	}
	t.Setenv("ZKR_SASL", "digest-md5")
	t.Setenv("ZKR_SASL_PASSWORD_FILE", passwordFile(t, "sec\x00ret"))
	if code, text := zkrtest.Zkr(e, "ls", "/"); code != ExitUsage || !strings.Contains(text, "zero bytes") {
		t.Errorf("a zero byte: exit code %d, %s", code, text)
	}
}

// The file is read at each connection.
func TestPasswordIsReadAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		file := passwordFile(t, "secret\n")
		c, network := usingPassword(t, w, file)
		if err := c.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("older\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		network.Drop()
		time.Sleep(time.Minute)
		if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, framework.ErrAuthFailed) {
			t.Errorf("with another password: %v", err)
		}
		if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if _, _, err := c.Get(t.Context(), "/"); err != nil {
			t.Errorf("with the right one again: %v", err)
		}
	}, testutil.WithMembers(3), testutil.WithSASL(saslUsers), testutil.WithEnforcedAuth("sasl"))
}

// A pipe, as <(command) makes one, was read for the check of the flags, and
// gave nothing at the first connection.
func TestPasswordFromAPipe(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		r, into, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := into.WriteString("secret\n"); err != nil {
			t.Fatal(err)
		}
		into.Close()
		c, network := usingPassword(t, w, fmt.Sprint("/dev/fd/", r.Fd()))
		for range 3 {
			if _, _, err := c.Get(t.Context(), "/"); err != nil {
				t.Error(err)
			}
			network.Drop()
			time.Sleep(time.Second)
		}
	}, testutil.WithMembers(3), testutil.WithSASL(saslUsers), testutil.WithEnforcedAuth("sasl"))
}
