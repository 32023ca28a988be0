//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// several parses arguments as zkr guard does.
func several(t *testing.T, args ...string) ([]*Ensemble, error) {
	t.Helper()
	to := &Ensemble{}
	var s *Several
	root := NewRoot(to, func(to *Ensemble) []*cobra.Command {
		cmd := &cobra.Command{Use: "guard", RunE: func(*cobra.Command, []string) error { return nil }, Args: cobra.NoArgs}
		s = to.AddSeveral(cmd.Flags())
		return []*cobra.Command{cmd}
	})
	root.SetArgs(append([]string{"guard"}, args...))
	if err := root.Execute(); err != nil {
		return nil, err
	}
	return s.Ensembles()
}

// TestSeveralEnsembles: each --servers has the flags behind it, and those
// before the first.
func TestSeveralEnsembles(t *testing.T) {
	t.Setenv("ZKR_SASL_USER", "everybody")
	all, err := several(t, "--tls-ca", "all.pem", "--servers", "a", "--tls-server-name=x", "--servers", "b", "--tls-ca", "b.pem", "--sasl", "digest-md5", "--sasl-user=b", "--tls")
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	a, b := all[0], all[1]
	if a.Servers != "a" || a.tls != (tlsFlags{ca: "all.pem", hostname: "x"}) || a.sasl != (saslFlags{user: "everybody"}) {
		t.Errorf("%q %+v %+v", a.Servers, a.tls, a.sasl)
	}
	if b.Servers != "b" || b.tls != (tlsFlags{ca: "b.pem", on: true}) || b.sasl != (saslFlags{mechanism: "digest-md5", user: "b"}) {
		t.Errorf("%q %+v %+v", b.Servers, b.tls, b.sasl)
	}
	t.Setenv("ZKR_SERVERS", "env:1")
	if all, err = several(t, "--tls"); err != nil || len(all) != 1 || all[0].Servers != "env:1" || !all[0].tls.on {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := several(t, "--tls=maybe"); err == nil {
		t.Error("a wrong value is accepted")
	}
}

// TestGuardArgs: the arguments of a child lead to the same ensemble from
// another directory, name every flag that says how to reach it, and have no
// credentials of --auth.
func TestGuardArgs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	e := &Ensemble{}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	e.addFlags(flags)
	reach := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&Ensemble{}).addReach(reach)
	var want []string
	reach.VisitAll(func(f *pflag.Flag) {
		value := "x:1"
		switch {
		case f.Value.Type() == "bool":
			value = "true"
			want = append(want, "--"+f.Name)
		case strings.Contains(f.Usage, "file with"):
			value = f.Name
			if err := os.WriteFile(value, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			want = append(want, "--"+f.Name+"="+filepath.Join(dir, value))
		default:
			want = append(want, "--"+f.Name+"="+value)
		}
		if err := flags.Set(f.Name, value); err != nil {
			t.Fatal(err)
		}
	})
	_ = flags.Set("auth", "digest:secret:secret")
	got, err := e.GuardArgs()
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, want %q (%v)", got, want, err)
	}
	if got, err := (&Ensemble{Servers: "a"}).GuardArgs(); err != nil || !slices.Equal(got, []string{"--servers=a"}) {
		t.Errorf("%q, %v", got, err)
	}
	environ := []string{"PATH=/bin", "ZKR_AUTH_FILE=x", "ZKR_SERVERS=y", "ZKR_TEST_ROLE=z", "ZKR_SASL_KEYTAB=k"}
	if got := GuardVariables(environ); !slices.Equal(got, []string{"PATH=/bin", "ZKR_TEST_ROLE=z"}) || len(environ) != 5 {
		t.Errorf("%q", got)
	}
}

// TestAFileThatCanBeReadOnce is left to zkr itself.
func TestAFileThatCanBeReadOnce(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	e := &Ensemble{}
	for _, name := range []string{fifo, filepath.Dir(fifo), "/nonexistent"} {
		e.sasl.passwordFile = name
		if args, err := e.GuardArgs(); err == nil {
			t.Errorf("%s: %q", name, args)
		}
	}
}
