package acceptance_test

import (
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// imitated is an ensemble whose clients take it for ClickHouse Keeper.
type imitated struct{ testutil.Ensemble }

func (e imitated) ClientNet(name string) *testutil.ClientNet {
	network := e.Ensemble.ClientNet(name)
	network.Imitate(testutil.ClickHouseKeeper)
	return network
}

func (e imitated) Dial(network, address string, limit time.Duration) (net.Conn, error) {
	return e.ClientNet("of the ensemble").Dial(network, address, limit)
}

// overADisconnect are the scenarios that cannot hold there: a lease, or a place
// in line, lasts over a disconnect.
var overADisconnect = []string{
	"a short disconnect costs nothing",
	"a holder's requests are lost, or the answers",
	"a reader's requests are lost, or the answers",
	"a candidate's requests are lost, or the answers",
}
