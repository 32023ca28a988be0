package bubble

import "github.com/zkrecipes/zkrecipes/testutil"

// Outage is how all servers leave a client.
type Outage int

// Outages.
const (
	Silent      Outage = iota // servers accept connections, and never answer
	Refused                   // servers have ended
	Unreachable               // nothing arrives, and connections time out
)

// Outages are all of them.
var Outages = []Outage{Silent, Refused, Unreachable}

func (o Outage) String() string { return [...]string{"silent", "refused", "unreachable"}[o] }

// Begin begins an outage for the client of a network. What servers keep for
// themselves they keep until over is closed.
func (w *World) Begin(o Outage, net *Net, over <-chan struct{}) {
	w.T.Helper()
	switch o {
	case Silent:
		net.Control(func(testutil.Request) testutil.Action { return testutil.Hold(over) })
	case Unreachable:
		net.Cut()
	case Refused:
		for i := range w.Members() {
			if err := w.Stop(i); err != nil {
				w.T.Error(err)
			}
		}
	}
}
