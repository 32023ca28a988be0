package faults

import (
	"github.com/zkrecipes/zkrecipes/internal/test/sim"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// where says at which moments a fault is tried. Its fields name points of the
// client that is struck: before the moment, and after it. A fault between two
// moments that are not listed has the same effect as at one of those that are:
// nothing that it touches happens between them.
type where struct {
	before, after []sim.Point
	others        bool // after a member has executed a request of another client: an event may be under way
}

var (
	// What a client's network does shows where a message of it is under way.
	onTheWire = where{before: []sim.Point{sim.Sent}, after: []sim.Point{sim.Executed, sim.Answered, sim.Notified}, others: true}
	// A broken connection loses what is under way.
	broken = where{
		before: []sim.Point{sim.Sent, sim.Executed, sim.Answered, sim.Notified, sim.Caller},
		after:  []sim.Point{sim.Sent, sim.Answered, sim.Notified}, others: true,
	}
	leaving = where{before: []sim.Point{sim.Sent}}
	coming  = where{after: []sim.Point{sim.Executed}, others: true}
	// What strikes a client that holds something, whatever is under way.
	knowing = where{before: []sim.Point{sim.Caller}, after: []sim.Point{sim.Answered}}
	// What happens at the ensemble happens between two requests that it executes.
	atTheEnsemble = where{before: []sim.Point{sim.Executed}, after: []sim.Point{sim.Sent, sim.Executed, sim.Answered, sim.Notified}, others: true}
	// What happens in the process happens between two things that it notices.
	inTheProcess = where{
		before: []sim.Point{sim.Answered, sim.Notified, sim.Caller},
		after:  []sim.Point{sim.Sent, sim.Answered, sim.Notified, sim.Caller},
	}
)

// deed is a fault that can strike a client.
type deed struct {
	what          sim.What
	tenths, steps int
	at            where
	pairs         bool // it is tried as one of a pair, too
	leader        bool // a guarantee against it needs framework.ProofWrite
}

// Short is long enough for a connection to be given up, and long for a session
// to end.
const (
	short = 6
	long  = 15
)

var deeds = []deed{
	{what: sim.Drop, at: broken, pairs: true},
	{what: sim.Cut, tenths: short, at: onTheWire},
	{what: sim.Cut, tenths: long, at: onTheWire, pairs: true},
	{what: sim.LateConnect, tenths: long, at: knowing, pairs: true},
	{what: sim.DropRequests, tenths: short, at: onTheWire},
	{what: sim.DropRequests, tenths: long, at: onTheWire, pairs: true},
	{what: sim.DropReplies, tenths: short, at: onTheWire},
	{what: sim.DropReplies, tenths: long, at: onTheWire, pairs: true},
	{what: sim.DelayRequests, steps: 1, at: leaving},
	{what: sim.DelayRequests, steps: 4, at: leaving, pairs: true},
	{what: sim.DelayAnswers, steps: 1, at: coming},
	{what: sim.DelayAnswers, steps: 4, at: coming, pairs: true},

	{what: sim.Expire, at: atTheEnsemble, pairs: true},
	{what: sim.RemoveZnode, at: atTheEnsemble, pairs: true},
	{what: sim.RemoveDir, at: atTheEnsemble, pairs: true},
	{what: sim.DenyCreate, tenths: short, at: atTheEnsemble},
	{what: sim.DenyRead, tenths: short, at: atTheEnsemble},
	{what: sim.DenyDelete, tenths: short, at: atTheEnsemble},

	{what: sim.Stop, tenths: short, at: atTheEnsemble},
	{what: sim.Stop, tenths: long, at: atTheEnsemble, pairs: true},
	{what: sim.Pause, tenths: long, at: atTheEnsemble},
	{what: sim.Isolate, tenths: short, at: atTheEnsemble},
	{what: sim.Isolate, tenths: long, at: atTheEnsemble, pairs: true},
	{what: sim.Lag, tenths: short, at: atTheEnsemble},
	{what: sim.Lag, tenths: long, at: atTheEnsemble, pairs: true},
	{what: sim.Mute, tenths: long, at: atTheEnsemble},
	{what: sim.Wedge, tenths: long, at: atTheEnsemble},
	{what: sim.StopFirst, tenths: long, at: atTheEnsemble, pairs: true},
	{what: sim.IsolateLeader, tenths: long, at: atTheEnsemble, leader: true},
	{what: sim.PauseLeader, tenths: long, at: atTheEnsemble, leader: true},

	{what: sim.Cancel, at: inTheProcess, pairs: true},
	{what: sim.Close, at: inTheProcess, pairs: true},
	{what: sim.Kill, at: inTheProcess},
	{what: sim.PauseProcess, at: inTheProcess, pairs: true},
	{what: sim.Jump, tenths: 5, at: inTheProcess},
	{what: sim.Jump, tenths: 20, at: inTheProcess, pairs: true},
}

// codes are the errors that a server can answer a request with, and say the
// truth. Those of all requests come first. That a znode is missing is not one
// of them: the faults above remove it.
var codes = map[string][]testutil.Code{
	"": {testutil.CodeConnectionLoss, testutil.CodeOperationTimeout, testutil.CodeThrottled, testutil.CodeSessionExpired, testutil.CodeSessionMoved, testutil.CodeSystemError},
	// A directory that is ephemeral, an ACL that is not valid, and a quota that
	// is used up.
	"create":          {testutil.CodeNoAuth, testutil.CodeNodeExists, -108, -114, testutil.CodeQuotaExceeded},
	"createContainer": {testutil.CodeNoAuth, testutil.CodeNodeExists, testutil.CodeUnimplemented},
	"getChildren2":    {testutil.CodeNoAuth},
	"getData":         {testutil.CodeNoAuth},
	"exists":          {testutil.CodeNoAuth},
	"delete":          {testutil.CodeNoAuth, testutil.CodeBadVersion, testutil.CodeNotEmpty},
	"setData":         {testutil.CodeNoAuth, testutil.CodeBadVersion},
}

// changes are the requests that change something at the ensemble.
var changes = map[string]bool{"create": true, "createContainer": true, "multi": true, "delete": true, "setData": true}

const connect = "connect"
