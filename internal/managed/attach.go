package managed

import "context"

// Attach returns the value that is attached to the client under key. If there
// is none it attaches what newValue returns. If two goroutines do so at the
// same time, both get the same value and the other one is dropped. The value
// lives as long as the client, and all namespaces of the client share it. All
// locks of one client find each other by it.
//
// A value that can do without some of its ephemeral znodes has a method
// GiveBack(context.Context) bool. The client calls it, without locks held,
// before it refuses a create: see framework.WithMaxEphemerals. It removes one
// of them, and waits until it is gone. It returns false if there is none, or
// the context has ended before.
func (c *Client) Attach(key any, newValue func() any) any {
	k := c.core()
	k.mu.Lock()
	value, ok := k.attached[key]
	k.mu.Unlock()
	if ok || newValue == nil {
		return value
	}
	made := newValue() // without the mutex: the function is the caller's, and may take its time
	k.mu.Lock()
	defer k.mu.Unlock()
	if value, ok = k.attached[key]; !ok {
		k.attached[key], value = made, made
	}
	return value
}

// Attached returns the value of type T that is attached to the client. If there
// is none it attaches what newValue returns, a *T: see Attach.
func Attached[T any](c *Client, newValue func() any) *T {
	return c.Attach(attached[T]{}, newValue).(*T)
}

type attached[T any] struct{}

// giver is a value attached to a client that can do without some of its
// ephemeral znodes.
type giver interface {
	// GiveBack removes one of them, and waits until it is gone. It reports false
	// if there is none, or ctx has ended before.
	GiveBack(ctx context.Context) bool
}

// GiveBack makes room for a create by a znode that nobody needs.
func (c *core) GiveBack(ctx context.Context) bool {
	var givers []giver
	c.mu.Lock()
	for _, value := range c.attached {
		if g, ok := value.(giver); ok {
			givers = append(givers, g)
		}
	}
	c.mu.Unlock()
	for _, g := range givers {
		if g.GiveBack(ctx) {
			return true
		}
	}
	return false
}
