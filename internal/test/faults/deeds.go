package faults

import (
	"time"

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
	asking  = where{before: []sim.Point{sim.Caller}, after: []sim.Point{sim.Answered}} // what a server has, beside the session
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

// Short is long enough for a connection to be given up, and long for a session
// to end. Late is for a request that its connection does not outlive.
const (
	short = timeout * 6 / 10
	long  = timeout * 15 / 10
	late  = timeout / 8
)

// deeds are the faults of a client. Some are also tried as one of a pair.
var deeds = []struct {
	at     where
	pairs  bool
	faults []sim.Fault
}{
	{broken, true, []sim.Fault{{What: sim.Drop}}},
	{onTheWire, true, []sim.Fault{
		{What: sim.Cut, For: long}, {What: sim.DropRequests, For: long}, {What: sim.DropReplies, For: long},
	}},
	{onTheWire, false, []sim.Fault{
		{What: sim.Cut, For: short}, {What: sim.DropRequests, For: short}, {What: sim.DropReplies, For: short},
	}},
	{knowing, true, []sim.Fault{{What: sim.LateConnect, For: long, By: timeout / 4, Then: 8 * time.Millisecond}}},
	{knowing, false, []sim.Fault{
		{What: sim.NamesSilent, Member: sim.Every, For: long},
		{What: sim.NamesSilent, Member: sim.Near, For: long},
		{What: sim.NamesFail, Member: sim.Every, For: long},
		{What: sim.NamesSlow, Member: sim.Every, For: long, By: timeout / 4},
		{What: sim.NamesGone, Member: sim.Near, For: long},
		{What: sim.NamesMove, Member: sim.Every, For: long},
		{What: sim.AddressTaken, Member: sim.Near, For: long},
		{What: sim.AddressTaken, Member: sim.Every, For: long},
	}},
	{leaving, true, []sim.Fault{{What: sim.DropRequests, For: timeout / 4, Steps: 4}}},
	{leaving, false, []sim.Fault{{What: sim.DropRequests, For: timeout / 4, Steps: 1}}},
	{coming, true, []sim.Fault{{What: sim.DropReplies, For: timeout / 4, Steps: 4}}},
	{coming, false, []sim.Fault{{What: sim.DropReplies, For: timeout / 4, Steps: 1}}},
	{atTheEnsemble, true, []sim.Fault{
		{What: sim.Expire},
		{What: sim.RemoveZnode},
		{What: sim.RemoveDir},
		{What: sim.Stop, Member: sim.Near, For: long},
		{What: sim.Stop, Member: sim.Leader, For: long},
		{What: sim.Isolate, Member: sim.Near, For: long},
		{What: sim.Lag, Member: sim.Near, For: long},
	}},
	{atTheEnsemble, false, []sim.Fault{
		{What: sim.DenyCreate, For: short},
		{What: sim.DenyRead, For: short},
		{What: sim.DenyDelete, For: short},
		{What: sim.Stop, Member: sim.Near, For: short},
		{What: sim.Isolate, Member: sim.Near, For: short},
		{What: sim.Lag, Member: sim.Near, For: short},
		{What: sim.Pause, Member: sim.Near, For: long},
		{What: sim.Mute, Member: sim.Near, For: long},
		{What: sim.Wedge, Member: sim.Near, For: long},
		{What: sim.Isolate, Member: sim.Leader, For: long},
		{What: sim.Pause, Member: sim.Leader, For: long},
	}},
	{atTheEnsemble, false, []sim.Fault{{What: sim.Restore}, {What: sim.RebuildFewer}, {What: sim.Rebuild}, {What: sim.RebuildMore}}},
	{inTheProcess, true, []sim.Fault{{What: sim.Cancel}, {What: sim.Close}, {What: sim.PauseProcess}, {What: sim.Jump, By: 2 * timeout}}},
	{asking, false, []sim.Fault{{What: sim.ListWithout, Member: sim.Near, For: long}}},
	{asking, false, []sim.Fault{{What: sim.Full, For: long}, {What: sim.LateBeside, For: long, By: short}}},
	{inTheProcess, false, []sim.Fault{{What: sim.Kill}, {What: sim.Jump, By: timeout / 2}}},
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
	"addWatch":        {testutil.CodeUnimplemented, -5},
	"delete":          {testutil.CodeNoAuth, testutil.CodeBadVersion, testutil.CodeNotEmpty},
	"setData":         {testutil.CodeNoAuth, testutil.CodeBadVersion},
}

// changes are the requests that change something at the ensemble.
var changes = map[string]bool{"create": true, "createContainer": true, "multi": true, "delete": true, "setData": true}

var connect = testutil.OpCreateSession.String()
