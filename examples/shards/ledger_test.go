package main

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// ledger is the store, with a log of all that arrives there.
type ledger struct {
	store store

	mu  sync.Mutex // guards log, and orders what arrives
	log []entry
}

// entry is a write that has arrived.
type entry struct {
	at     time.Time
	shard  int
	member string
	token  recipes.Token
	err    error // it was refused
}

func (l *ledger) write(member string, shard int, token recipes.Token) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.store.write(member, shard, token)
	l.log = append(l.log, entry{time.Now(), shard, member, token, err})
	return err
}

func (l *ledger) entries() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.log)
}

// owners returns who has written last to each shard.
func (l *ledger) owners() [shards]string {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.members
}

// refused returns whose writes were refused, and how many.
func (l *ledger) refused() map[string]int {
	refused := make(map[string]int)
	for _, e := range l.entries() {
		if e.err != nil {
			refused[e.member]++
		}
	}
	return refused
}

// since returns how long it took from a time until one of the members has
// written to the shard.
func (l *ledger) since(from time.Time, shard int, members ...string) time.Duration {
	for _, e := range l.entries() {
		if e.err == nil && e.shard == shard && e.at.After(from) && slices.Contains(members, e.member) {
			return e.at.Sub(from)
		}
	}
	return time.Hour
}

// rest returns the longest time after from in which nobody has written to the
// shard.
func (l *ledger) rest(from time.Time, shard int) (longest time.Duration) {
	last := from
	for _, e := range l.entries() {
		if e.err == nil && e.shard == shard && e.at.After(last) {
			longest = max(longest, e.at.Sub(last))
			last = e.at
		}
	}
	return max(longest, time.Since(last))
}

// audit returns what is wrong with the log. It does not rely on the store: of
// the writes that were accepted to a shard none has a token that is less than
// one before, or the token of another member.
func audit(log []entry) error {
	var last [shards]entry
	for _, e := range log {
		before := last[e.shard]
		switch order := e.token.Compare(before.token); {
		case e.err != nil:
			continue
		case order < 0:
			return fmt.Errorf("shard %d: %s wrote with token %s, after %s with %s", e.shard, e.member, e.token, before.member, before.token)
		case order == 0 && before.member != e.member:
			return fmt.Errorf("shard %d: %s and %s wrote with token %s", e.shard, before.member, e.member, e.token)
		}
		last[e.shard] = e
	}
	return nil
}

// The audit finds a token that goes back, and one of two members; a write that
// was refused does not matter.
func TestAudit(t *testing.T) {
	token := func(n int) (token recipes.Token) {
		if err := token.UnmarshalText(fmt.Appendf(nil, "%032x", n)); err != nil {
			t.Fatal(err)
		}
		return token
	}
	one, two := entry{member: "a", token: token(1)}, entry{member: "b", token: token(2)}
	late := one
	late.err = fmt.Errorf("refused")
	for _, good := range [][]entry{nil, {one, one, two, two}, {one, two, late, two}, {two, {shard: 1, member: "a", token: token(1)}}} {
		if err := audit(good); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	for _, bad := range [][]entry{{two, one}, {one, {member: "b", token: token(1)}}, {one, two, late, one}} {
		if audit(bad) == nil {
			t.Errorf("%v is not found", bad)
		}
	}
}
