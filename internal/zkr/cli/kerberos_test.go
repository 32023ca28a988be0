package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
)

// unfit is a mechanism that framework.New refuses, so nothing is dialed.
type unfit struct{}

func (unfit) Begin(context.Context, framework.SASLServer) (framework.SASLExchange, error) {
	panic("dialed")
}

func (unfit) Check() error { return errors.New("it came to the mechanism") }

// The flags of Kerberos, or their variables, come to the mechanism; those that
// make no sense do not.
func TestKerberosFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, mode := range map[string]os.FileMode{"key": 0o640, "cache": 0o600, "password": 0o600, "public": 0o644} {
		if err := os.WriteFile(name, []byte("secret\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]any{ // what comes to the mechanism, or a part of the error
		"":                                      KerberosCredentials{},
		"--sasl-server-principal zk/a@R":        KerberosCredentials{ServerPrincipal: "zk/a@R"},
		"--sasl-user app@R --sasl-keytab key":   KerberosCredentials{User: "app@R", Keytab: "key"},
		"--sasl-ccache cache":                   KerberosCredentials{CCache: "cache"},
		"--sasl-ccache FILE:cache":              KerberosCredentials{CCache: "FILE:cache"},
		"--sasl-ccache KCM:":                    KerberosCredentials{CCache: "KCM:"},
		"--sasl-keytab key":                     "need --sasl-user app@REALM",
		"--sasl-password-file password":         "need --sasl-user app@REALM",
		"--sasl-user app@R":                     "--sasl-user needs",
		"--sasl-user app@R --sasl-ccache cache": "--sasl-user needs",
		"--sasl-user app@R --sasl-keytab key --sasl-ccache cache":           "more than one",
		"--sasl-user app@R --sasl-keytab key --sasl-password-file password": "more than one",
		"--sasl-user app@R --sasl-keytab public":                            "--sasl-keytab: public has mode 0644",
		"--sasl-user app@R --sasl-keytab none":                              "--sasl-keytab: open none",
		"--sasl-user app@R --sasl-password-file public":                     "--sasl-password-file: public has mode 0644",
		"--sasl-ccache public":                                              "--sasl-ccache: public has mode 0644",
		"--sasl-ccache FILE:public":                                         "--sasl-ccache: public has mode 0644",
		"--sasl-ccache none":                                                "--sasl-ccache: open none",
	} {
		fields := strings.Fields(args)
		t.Run("flags "+args, func(t *testing.T) { kerberosFlags(t, want, fields...) })
		t.Run("variables "+args, func(t *testing.T) {
			for i := 0; i < len(fields); i += 2 {
				t.Setenv(VariableOf(strings.TrimPrefix(fields[i], "--")), fields[i+1])
			}
			kerberosFlags(t, want)
		})
	}
}

func kerberosFlags(t *testing.T, want any, args ...string) {
	t.Helper()
	code, out, made := runKerberos(args...)
	if text, fails := want.(string); fails {
		if made != nil || code != ExitUsage || !strings.Contains(out, text) {
			t.Errorf("exit code %d, %s", code, out)
		}
	} else if made == nil || !reflect.DeepEqual(*made, want) || code != ExitUsage || !strings.Contains(out, "it came to the mechanism") {
		t.Errorf("%+v; exit code %d, %s", made, code, out)
	}
}

// runKerberos returns what comes to the mechanism of a zkr that has Kerberos.
func runKerberos(args ...string) (code int, out string, made *KerberosCredentials) {
	var text bytes.Buffer
	code = Run(append([]string{"ls", "--servers", "127.0.0.1:1", "--sasl", "gssapi"}, args...), &text, &text, func(c KerberosCredentials) framework.SASL {
		made = &c
		return unfit{}
	}, AllCommands...)
	return code, text.String(), made
}

// The file with the password is read again whenever it is asked for.
func TestKerberosPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	_, out, made := runKerberos("--sasl-user", "app@R", "--sasl-password-file", file)
	if made == nil || made.User != "app@R" {
		t.Fatal(out)
	}
	write("new")
	if password, err := made.Password(); err != nil || password != "new" {
		t.Errorf("%q, %v", password, err)
	}
}
