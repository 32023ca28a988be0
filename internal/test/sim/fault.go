package sim

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// Fault is something that fails once. Most faults last for a while.
type Fault struct {
	What   What
	Client int           // whose connection, session, member, znode or caller it strikes
	Member int           // its number, or Near, Leader or Every
	For    time.Duration // how long it lasts
	Steps  int           // above 0: it ends after so many steps of others, if that is sooner
	By     time.Duration // the delay, or how far the clock jumps
	Then   time.Duration // the client is also cut off, after this time; 0: it is not; after a connect only what it sends
	Op     string        // of single requests; "": of all, where Times is negative
	Times  int           // how many of them; of a request at a moment: this one; negative: all of the client's while it lasts
	Code   testutil.Code // what they are refused with
	Nth    int           // which operation of a multi is refused, counted from 1; 0: the whole
	Short  int           // how far the new directory's counter is behind the old one; negative: it is not created
	At     When
}

// Members that are known when a fault happens.
const (
	Near   = -1 // the one that the client is connected to
	Leader = -2
	Every  = -3 // all of them
)

// What says what fails.
type What string

// The faults.
const (
	Cut             What = "cut"
	DropReplies     What = "drop replies"  // the client receives nothing
	DropRequests    What = "drop requests" // the members receive nothing
	Drop            What = "drop"
	Late            What = "late"           // the client receives everything late
	Expire          What = "expire"         // an operator ends the session
	Close           What = "close"          // the client
	Kill            What = "kill"           // the client's process
	PauseProcess    What = "pause process"  // for so long that its session expires
	Jump            What = "jump"           // the clock of all clients jumps ahead
	Cancel          What = "cancel"         // what the client's callers do
	RepeatConnect   What = "repeat connect" // the request that opens a connection arrives twice
	LateConnect     What = "late connect"   // the client is disconnected, and its next connect is answered late
	LostConnect     What = "lost connect"   // the same, and the answer is lost
	LateAttach      What = "late attach"    // the same, and the connect reaches the leader late
	Stop            What = "stop"
	Pause           What = "pause"
	Isolate         What = "isolate"
	Lag             What = "lag"
	Mute            What = "mute"
	Wedge           What = "wedge"
	Slow            What = "slow"        // every message
	LoseEvents      What = "lose events" // those that the client is sent
	Full            What = "full"        // connections of the client beside that of its session are refused
	LateBeside      What = "late beside" // the client receives everything late on these
	Before          What = "drop before"
	After           What = "drop after"
	Refuse          What = "refuse"
	Delay           What = "delay"
	DelayAns        What = "delay answer"
	Orphan          What = "orphan"                   // executed when the connection is gone and the caller has left
	LeaderStops     What = "leader stops"             // the leader stops while a request is in flight
	LeaderStopsLate What = "leader stops late"        // the leader stops when it has executed a request, before the answer
	Recreate        What = "recreate"                 // the directory is removed and created again
	RecreateUnder   What = "recreate during a create" // the same while the client's create is in flight
	RemakeUnder     What = "remake during a read"     // the same with all that it contains, while a read of the client is in flight
	RemoveZnode     What = "remove znode"             // of the client, in the line
	WriteZnode      What = "write znode"              // the same, as who asks for a release
	WriteUnheard    What = "write znode unheard"      // the same, of a waiter, while it may not be read: no event comes
	RemoveDir       What = "remove directory"
	Copy            What = "copy"               // of the ensemble, for the next Restore
	Restore         What = "restore"            // the ensemble, from a copy that has all sessions, with a higher epoch
	RebuildFewer    What = "rebuild with fewer" // from nothing, by the same script, with fewer transactions
	Rebuild         What = "rebuild"            // with as many
	RebuildMore     What = "rebuild with more"
	DenyCreate      What = "deny create" // by the directory's ACL
	DenyRead        What = "deny read"
	DenyDelete      What = "deny delete"
	NamesSilent     What = "names silent" // the name server about a member, or all, and the client is disconnected
	NamesFail       What = "names fail"
	NamesGone       What = "names gone"
	NamesSlow       What = "names slow"
	NamesMove       What = "names move"     // members have other addresses
	ListWithout     What = "list without"   // a member: the client's list of servers
	ListOnly        What = "list only"      // with this member
	ListElsewhere   What = "list elsewhere" // with nothing but another ensemble
	Replace         What = "replace"        // a member by another one, at another address
	AddressTaken    What = "address taken"  // another ensemble has a member's, and the name server is silent
)

// connects reports whether a fault strikes the next connect of its client.
func (f What) connects() bool { return f == LateConnect || f == LostConnect || f == LateAttach }

// When is when a fault happens: at a time, upon an event, or at a moment. At a
// moment it does not happen if the run has no such moment.
type When struct {
	Time   time.Duration // since the beginning
	Upon   bool          // after that, when a client is sent an event about a write: it strikes that client; not if that takes long
	Moment Moment        // zero: it has a time
}

const uponEvent = ", upon an event"

// String returns the time as parse reads it.
func (w When) String() string {
	switch {
	case w.Moment != Moment{}:
		return w.Moment.String()
	case w.Upon:
		return w.Time.String() + uponEvent
	}
	return w.Time.String()
}

func (w *When) parse(text string) (err error) {
	if strings.Contains(text, "client") {
		w.Moment, err = ParseMoment(text)
		return err
	}
	text, w.Upon = strings.CutSuffix(text, uponEvent)
	w.Time, err = time.ParseDuration(text)
	return err
}

// field is a part of a fault's text.
type field struct {
	name  string
	value any // a pointer
}

func (f *Fault) fields() []field {
	return []field{
		{"client", &f.Client},
		{"member", &f.Member},
		{"for", &f.For},
		{"steps", &f.Steps},
		{"by", &f.By},
		{"then", &f.Then},
		{"op", &f.Op},
		{"times", &f.Times},
		{"code", (*int32)(&f.Code)},
		{"operation", &f.Nth},
		{"short", &f.Short},
		{"at", &f.At},
	}
}

// String returns the fault as ParseFault reads it: without what is zero.
func (f Fault) String() string {
	text := string(f.What)
	for _, part := range f.fields() {
		if v := reflect.ValueOf(part.value).Elem(); !v.IsZero() || part.name == "client" {
			text += fmt.Sprintf("; %s %v", part.name, v)
		}
	}
	return text
}

// ParseFault reads what String returns.
func ParseFault(text string) (f Fault, err error) {
	what, rest, more := strings.Cut(text, "; ")
	f.What = What(what)
	for _, part := range f.fields() {
		value, ok := strings.CutPrefix(rest, part.name+" ")
		if !more || !ok {
			continue
		}
		value, rest, more = strings.Cut(value, "; ")
		switch to := part.value.(type) {
		case *time.Duration:
			*to, err = time.ParseDuration(value)
		case *When:
			err = to.parse(value)
		default:
			_, err = fmt.Sscan(value, to)
		}
		if err != nil {
			break
		}
	}
	if err != nil || f.String() != text {
		return Fault{}, fmt.Errorf("not a fault: %q", text)
	}
	return f, nil
}
