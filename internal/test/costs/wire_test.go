package costs_test

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// traffic is what a client has sent and received.
type traffic struct{ requests, transactions, events atomic.Int64 }

// dial returns a dialer whose connections count in t.
func (t *traffic) dial(dial framework.Dialer) framework.Dialer {
	return bubble.Tapped(dial, func() bubble.Tap {
		return bubble.Tap{Sent: afterFirst(t.sent), Received: afterFirst(t.received)}
	})
}

// afterFirst leaves out the first frame, which is a part of the handshake.
func afterFirst(each func(frame []byte)) func(frame []byte) {
	first := true
	return func(frame []byte) {
		if !first {
			each(frame)
		}
		first = false
	}
}

// These requests change the tree, or would if they were not refused.
var changing = map[testutil.Op]bool{
	testutil.OpCreate: true, testutil.OpCreate2: true, testutil.OpCreateContainer: true, testutil.OpCreateTTL: true,
	testutil.OpDelete: true, testutil.OpSetData: true, testutil.OpSetACL: true, testutil.OpMulti: true,
}

const (
	eventXid = -1
	pingXid  = -2
)

func (t *traffic) sent(frame []byte) {
	if int32(binary.BigEndian.Uint32(frame)) == pingXid {
		return
	}
	t.requests.Add(1)
	if changing[testutil.Op(binary.BigEndian.Uint32(frame[4:]))] {
		t.transactions.Add(1)
	}
}

func (t *traffic) received(frame []byte) {
	if int32(binary.BigEndian.Uint32(frame)) == eventXid {
		t.events.Add(1)
	}
}
