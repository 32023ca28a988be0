package zkotel

import (
	"context"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
)

func (o *observer) opened() { o.clients.Add(context.Background(), 1, o.set()) }

// stateChanged counts the clients that are connected, which may be several.
func (o *observer) stateChanged(c framework.StateChange) {
	ctx := context.Background()
	o.transitions.Add(ctx, 1, o.set(stateKey.String(strings.ToLower(c.To.String()))))
	if c.To == framework.Connected {
		o.connected.Add(ctx, 1, o.set())
	}
	if c.From == framework.Connected {
		o.connected.Add(ctx, -1, o.set())
	}
	if c.To == framework.Closed {
		o.clients.Add(ctx, -1, o.set())
	}
}

func (o *observer) abandoned(a framework.Abandonment) {
	o.abandonments.Add(context.Background(), 1, o.set(reasonKey.String(string(a.Reason))))
}

func (o *observer) moved(m framework.Move) {
	result := "moved"
	if m.Err != nil {
		result = "failed"
	}
	o.moves.Add(context.Background(), 1, o.set(resultKey.String(result)))
}

func (o *observer) guardianLost(error) { o.guardians.Add(context.Background(), 1, o.set()) }

func (o *observer) dropped(d framework.Drop) {
	o.drops.Add(context.Background(), int64(d.Events), o.set())
}
