package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// question is what is asked at each address.
type question struct {
	name    string
	promise string // what holds if the answer is good
	do      string // what helps if it is not
	needs   func(*probe) bool
	ask     func(context.Context, *probe) finding
}

// finding is what was seen. The zero finding is nothing worth a line.
type finding struct {
	verdict Verdict
	seen    string
	do      string // instead of the question's
}

func good(format string, args ...any) finding { return finding{verdict: OK, seen: said(format, args)} }

func noted(format string, args ...any) finding {
	return finding{verdict: Note, seen: said(format, args)}
}

func fails(format string, args ...any) finding {
	return finding{verdict: Fails, seen: said(format, args)}
}

// said is fmt.Sprintf, with errors of connections in plain words.
func said(format string, args []any) string {
	for i, arg := range args {
		err, ok := arg.(error)
		var code wire.Code
		switch {
		case !ok:
		case errors.As(err, &code):
			args[i] = code.String()
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			args[i] = "it closes the connection"
		case errors.Is(err, os.ErrDeadlineExceeded):
			args[i] = "no answer in time"
		}
	}
	return fmt.Sprintf(format, args...)
}

// or returns the finding with another thing to do.
func (f finding) or(do string) finding {
	f.do = do
	return f
}

func serves(p *probe) bool { return p.serves }

func works(p *probe) bool { return p.works }

const unfit = "do not build locks on this server: only Apache ZooKeeper is known to keep this promise"

// questions are asked one after the other. The first two say where the others
// make sense.
var questions = []question{
	{
		name: "session", ask: askSession,
		promise: "a lease's deadline is proven in time",
		do:      "start the server, or remove it from --servers",
	},
	{
		name: "ensemble", needs: works, ask: askEnsemble,
		promise: "all addresses lead to one ensemble, so there is one line for each lock",
		do:      "repair --servers: two ensembles grant one lock twice",
	},
	{
		name: "resume", needs: serves, ask: askResume,
		promise: "leases survive a disconnect",
		do:      "expect each disconnect to be a loss, or use servers that resume sessions",
	},
	{
		name: "proof", needs: serves, ask: askProof,
		promise: "a round trip to the leader proves a lease",
		do:      unfit,
	},
	{
		name: "close", needs: works, ask: askClose,
		promise: "locks are free as soon as their holder has gone",
		do:      "expect the locks of a client that has ended to stay for one session timeout",
	},
	{
		name: "order", needs: works, ask: askOrder,
		promise: "a list behind a create shows it; requests may share a round trip",
		do:      unfit,
	},
	{
		name: "events", needs: works, ask: askEvents,
		promise: "no waiter misses its turn",
		do:      unfit,
	},
	{
		name: "numbers", needs: works, ask: askNumbers,
		promise: "first come, first served; fencing tokens grow",
		do:      unfit,
	},
	{
		name: "containers", needs: works, ask: askContainers,
		promise: "directories of unused locks vanish",
		do:      "use --no-containers; programs: framework.WithContainers(false) and framework.WithSweep",
	},
	{
		name: "watches", needs: serves, ask: askWatches,
		promise: "a cache costs one watch, and few requests",
		do:      "use ZooKeeper 3.6 or later without WatchManagerOptimized, or expect two watches and two requests for each znode of a cache",
	},
	{
		name: "ephemerals", needs: works, ask: askEphemerals,
		promise: "a new session can hold a lock",
		do:      "set localSessionsUpgradingEnabled=true, or localSessionsEnabled=false, at the servers",
	},
	{
		name: "local", needs: serves, ask: askLocal,
		promise: "a session that has ended writes nothing",
		do:      "write by lease.Multi what a lock protects, or set localSessionsEnabled=false at the servers",
	},
	{
		name: "identity", needs: works, ask: askIdentity,
		promise: "ACLs let this client in, and others not",
		do:      "check --auth-file, the --sasl flags and the client's certificate",
	},
	{
		name: "size", needs: serves, ask: askSize,
		promise: "a request that is too large is an error, and costs no connection",
		do:      "set jute.maxbuffer of the servers, or framework.WithMaxRequest, to the same value",
	},
	{
		name: "sessions", needs: serves, ask: askSessions,
		promise: "every session can be ended, and members start again after that",
		do:      "let its owner use several clients, or fewer or shorter ephemeral paths (framework.WithMaxEphemerals)",
	},
	{
		name: "quota", needs: serves, ask: askQuota,
		promise: "creates are not refused for a quota",
		do:      "with enforceQuota=true creates fail at these limits: raise them, or remove unused znodes",
	},
	{
		name: "clock", needs: works, ask: askClock,
		promise: "the ages that zkr shows are true; Kerberos works",
		do:      "set the clocks by NTP: leases do not depend on them",
	},
	{
		name: "moves", needs: serves, ask: askMoves,
		promise: "clients move here when their list of servers changes",
		do:      "allow the word srvr (4lw.commands.whitelist): a client asks it before it moves",
	},
	{
		name: "certificate", needs: serves, ask: askCertificate,
		promise: "TLS goes on working",
		do:      "renew it",
	},
}

// Describe returns the name and the promise of each question, the quick ones or
// the slow ones.
func Describe(slow bool) (all [][2]string) {
	of := questions
	if slow {
		of = slowQuestions
	}
	for _, q := range of {
		all = append(all, [2]string{q.name, q.promise})
	}
	return all
}

// slowQuestions are asked all at once: they wait.
var slowQuestions = []question{
	{
		name: "expiry", needs: works, ask: askExpiry,
		promise: "no lock is granted twice, and none stays for long after its holder has died",
		do:      unfit,
	},
	{
		name: "sweep", needs: works, ask: askSweep,
		promise: "directories of unused locks vanish",
		do:      "remove unused directories yourself",
	},
	{
		name: "idle", needs: serves, ask: askIdle,
		promise: "connections do not flap",
		do:      "raise the idle timeout of the load balancer or firewall on the way over --session-timeout",
	},
}
