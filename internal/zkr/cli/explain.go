package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/missing"
)

// unreachable returns the error of a client that was not connected in time. It
// says what became of the calls of each server.
func (e *Ensemble) unreachable(err error, after time.Duration, called *calls) error {
	if errors.Is(err, zk.ErrAuthFailed) {
		return Failed(fmt.Errorf("cannot authenticate to the ensemble at %s: %w", e.Servers, err))
	}
	why := err
	var several interface{ Unwrap() []error } // the deadline, and why there is no connection
	if errors.As(err, &several) {
		if all := several.Unwrap(); len(all) > 1 {
			why = all[len(all)-1]
		}
	}
	todo := "check --servers, and that the servers run"
	if e.tls.used() {
		todo = "check --servers and the --tls flags, and that the servers run with TLS"
	}
	if e.sasl.mechanism == "gssapi" {
		todo += ", and a KDC"
	}
	return &Exit{ExitNoEnsemble, &Advice{
		Text: fmt.Sprintf("no ensemble at %s: timed out after %v: %s", e.Servers, after, called.explain(e.Hosts(), why)),
		Todo: todo,
		Err:  err,
	}}
}

// Advice is an error that says what to do.
type Advice struct {
	Text, Todo string
	Err        error
}

func (a *Advice) Error() string { return a.Text + "; " + a.Todo }

func (a *Advice) Unwrap() error { return a.Err }

// libraryNames are the parts of an error's text that are for programmers: the
// package that it comes from, the option that would help there, and Go's name
// of a timeout, which is followed by a better one.
var libraryNames = regexp.MustCompile(`(^|\n)(?:framework|recipes|locks|rwlock|semaphore|leader|presence|cache|inspect|testutil): |\bzk: |; see WithMaxRequest|, and the client was made without WithCreateChroot|context deadline exceeded: `)

// explain returns what is printed for an error: what failed, where, and what to
// do. With --verbose the errors that it wraps follow, one a line.
func (e *Ensemble) explain(err error) string {
	text := Plain(err)
	if todo := e.todo(err); todo != "" {
		text += "; " + todo
	}
	if e.verbose {
		var chain strings.Builder
		describe(&chain, err, 1)
		text += strings.TrimRight(chain.String(), "\n")
	}
	return text
}

// Plain returns the text of an error as one line, without what is for
// programmers.
func Plain(err error) string {
	text := strings.ReplaceAll(Complaint(err), zk.ErrNoAuth.Error(), "not allowed by the ACL") // who is authenticated gets it as well
	return strings.ReplaceAll(libraryNames.ReplaceAllString(text, "$1"), "\n", "; ")
}

// Todo says what to do about the ensemble's errors.
func (e *Ensemble) todo(err error) string {
	var advised *Advice
	switch {
	case missing.Chroot(err):
		return fmt.Sprintf("check --servers %s, or create it with --create-chroot", e.Servers)
	case errors.As(err, &advised), errors.Is(err, ErrLost): // of a lost lease it says how it was lost
		return ""
	case framework.MaybeApplied(err):
		return "no answer came to a request, so it may have been executed: look before you repeat it"
	case errors.Is(err, zk.ErrNoAuth):
		if len(e.identities) == 0 {
			return fmt.Sprintf("at %s this client has no identity: give credentials with --auth-file or --sasl", e.Servers)
		}
		return fmt.Sprintf("at %s this client is %s", e.Servers, strings.Join(e.identities, ", "))
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Sprintf("looked at %s: check the path and --servers", e.Servers)
	case errors.Is(err, zk.ErrBadVersion):
		return "the znode was changed: zkr stat shows its version"
	case errors.Is(err, zk.ErrNoServer):
		return fmt.Sprintf("check that the servers at %s run", e.Servers)
	case errors.Is(err, zk.ErrConnectionClosed): // the answer that says why can be lost with the connection
		return "if it happens again, zkr doctor says why: a server hangs up on a client that must authenticate"
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program listens there: choose another address"
	case errors.Is(err, zk.ErrInvalidACL):
		return "check the scheme and the id of --acl"
	default:
		return ""
	}
}

// describe writes the type and the text of an error and of all that it wraps.
func describe(out *strings.Builder, err error, depth int) {
	fmt.Fprintf(out, "\n%s%T: %s", strings.Repeat("  ", depth), err, strings.ReplaceAll(Complaint(err), "\n", "; "))
	switch wraps := err.(type) { //nolint:errorlint // each error of the chain is shown as it is
	case interface{ Unwrap() error }:
		if inner := wraps.Unwrap(); inner != nil {
			describe(out, inner, depth+1)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wraps.Unwrap() {
			describe(out, inner, depth+1)
		}
	}
}
