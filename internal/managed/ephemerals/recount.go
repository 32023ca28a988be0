package ephemerals

import (
	"maps"
	"time"
)

// This file compares what is counted with what the ensemble says there is.

// BeginCount begins a question for the session's ephemeral znodes: what happens
// from now on counts in any case. It returns false if one has ended less than a
// pause ago, or is under way, until under is closed.
func (a *Account) BeginCount(pause time.Duration) (begun bool, under <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.asked.count; c != nil {
		return false, c.done
	}
	if time.Since(a.asked.ended) < pause {
		return false, nil
	}
	a.asked.count = &count{done: make(chan struct{}), before: maps.Clone(a.made), unsure: a.unsureLocked(), news: make(map[string]struct{})}
	return true, nil
}

// EndCount applies the answer to the question that was begun, unless why, which
// it calls, says why it is none. It reports whether there may be more room: the
// sum has become less, or a claim has given back what it had from a room. No
// other session begins meanwhile.
func (a *Account) EndCount(found []string, why func() error) (more bool, err error) {
	a.mu.Lock()
	defer a.unlock()
	count, sum := a.asked.count, a.sum
	a.asked.count = nil
	close(count.done)
	if err := why(); err != nil {
		return false, err
	}
	a.asked.ended = time.Now()
	for _, c := range count.unsure {
		more = a.releaseLocked(c) > 0 || more
	}
	for _, path := range found {
		_, late := count.news[path]
		if _, counted := a.made[path]; !counted && !late {
			a.addLocked(path, nil)
		}
		delete(count.before, path)
	}
	for path := range count.before {
		if _, late := count.news[path]; !late {
			a.removeLocked(path)
		}
	}
	return more || a.sum < sum, nil
}

// Resolved says that it was asked what creates of unknown outcome have created:
// see Told. They do not count any longer if forget is true.
func (a *Account) Resolved(forget bool) {
	a.mu.Lock()
	defer a.unlock()
	a.asked.resolving = false
	if forget {
		for _, c := range a.unsureLocked() {
			a.releaseLocked(c)
		}
	}
}
