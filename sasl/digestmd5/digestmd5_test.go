package digestmd5_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
)

const challenge = `realm="zk-sasl-md5",nonce="abc",charset=utf-8,algorithm=md5-sess`

// What a server may send that is no challenge, or no proof.
func TestServersThatAreNone(t *testing.T) {
	for name, tt := range map[string]struct{ challenge, proof, want string }{
		"no directives":        {"hello", "", "not one of DIGEST-MD5"},
		"no nonce":             {`realm="a",algorithm=md5-sess`, "", "not one of DIGEST-MD5"},
		"another algorithm":    {`nonce="a",algorithm=md5`, "", "not one of DIGEST-MD5"},
		"encryption only":      {challenge + `,qop="auth-conf,auth-int"`, "", "auth-conf"},
		"a proof that is none": {challenge, "rspauth", "cannot be read"},
		"a wrong proof":        {challenge + `,qop="auth-conf, auth"`, "rspauth=00", "does not prove"},
		"no proof":             {challenge, "", "does not prove"},
	} {
		x, err := digestmd5.New("app", "secret").Begin(t.Context(), framework.SASLServer{})
		if err != nil {
			t.Fatal(err)
		}
		if first, done, err := x.Next(nil); first == nil || len(first) > 0 || done || err != nil {
			t.Errorf("%s: begins with %q, %t, %v", name, first, done, err)
		}
		response, done, err := x.Next([]byte(tt.challenge))
		if err == nil {
			if done || strings.Contains(string(response), "secret") {
				t.Errorf("%s: %s, %t", name, response, done)
			}
			response, done, err = x.Next([]byte(tt.proof))
			if response != nil || !done {
				t.Errorf("%s: %q, %t", name, response, done)
			}
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// The function is asked at each connection, and what it returns is checked.
func TestFunc(t *testing.T) {
	var user, password string
	var failed error
	m := digestmd5.Func(func() (string, string, error) { return user, password, failed })
	for _, tt := range []struct {
		user, password string
		err            error
		want           string
	}{
		{"app", "secret", nil, ""},
		{"", "secret", nil, "no user"},
		{"app", "", nil, "no password"},
		{"app", "a\nb", nil, "line"},
		{"app", "secret", errors.New("no file"), "no file"},
	} {
		user, password, failed = tt.user, tt.password, tt.err
		_, err := m.Begin(t.Context(), framework.SASLServer{})
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || errors.Is(err, framework.ErrAuthFailed)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// A program whose servers require DIGEST-MD5.
func Example() {
	c, err := framework.New("zk1:2181,zk2:2181,zk3:2181", framework.WithSASL(digestmd5.New("app", "secret")))
	if err != nil {
		return
	}
	defer c.Close()
}

// Where only the algorithms of FIPS 140 are allowed, MD5 panics. The exchange
// fails with an error that says why.
func TestFIPS(t *testing.T) {
	const child = "DIGESTMD5_FIPS"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFIPS$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1", "GODEBUG=fips140=only")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFIPS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	x, err := digestmd5.New("app", "secret").Begin(t.Context(), framework.SASLServer{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.Next(nil); err != nil {
		t.Fatal(err)
	}
	if response, _, err := x.Next([]byte(challenge)); err == nil || response != nil || !strings.Contains(err.Error(), "MD5 is not allowed") {
		t.Errorf("response %s, error %v", response, err)
	}
}
