package framework

// What follows is for the engine of this module's recipes. To write another
// recipe, use the package recipes, or the rest of this package.

// Attach returns the value that is attached to the client under key. If there
// is none it attaches what newValue returns. If two goroutines do so at the
// same time, both get the same value and the other one is dropped. The value
// lives as long as the client, and all namespaces of the client share it.
//
// It is for the engine of this module's recipes: all locks of one client find
// each other by it.
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

// CustomIDs returns a view of the session in which CreateProtected uses UUIDs
// of version 8, "custom", instead of version 4, "random". Both are equally
// random, and other clients accept both.
//
// It is for the engine of this module's recipes, which marks znodes by it: a
// list of the directory shows the version.
func (s *Session) CustomIDs() *Session {
	return &Session{live: s.live, root: s.root, customIDs: true, unhurried: s.unhurried}
}

// Unhurried returns a view of the session in which a CreateProtected that was
// sent does not return before its answer, or the end of the session, although
// its context ends. That saves a goroutine, and suits a caller that nobody waits
// for.
//
// It is for the engine of this module's recipes, whose acquisitions are such
// callers.
func (s *Session) Unhurried() *Session {
	return &Session{live: s.live, root: s.root, customIDs: s.customIDs, unhurried: true}
}
