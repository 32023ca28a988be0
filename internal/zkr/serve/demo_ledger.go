package serve

import (
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// ledger stands for what the clients of a scene share, and checks each grant:
// that no more is in use than there is, and that tokens increase. They are in
// the order of the line, so the latter also shows that nobody was overtaken.
//
// It also has a balance, which its holder reads and writes back later, so that
// two holders at once lose a posting. It refuses a token that is less than one
// that has written, as a resource that a lock protects should.
type ledger struct {
	capacity int         // how much there is
	unfenced bool        // tokens have no order
	fail     func(error) // gets what is wrong

	mu                     sync.Mutex     // guards what follows
	uses                   map[string]int // by client
	inUse, grants, balance int
	granted, written       recipes.Token // the last grant's and the last posting's
}

// take records a grant, and returns its number, from 1. It replaces what the
// client had before: a writer becomes a reader with its own token.
func (l *ledger) take(client string, amount int, token recipes.Token) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	order, had := token.Compare(l.granted), l.uses[client]
	l.inUse += amount - had
	if l.inUse > l.capacity {
		l.fail(fmt.Errorf("%s was granted %d of %d while these were taken: %v", client, amount, l.capacity, l.uses))
	}
	if !l.unfenced && (order < 0 || order == 0 && had == 0) {
		l.fail(fmt.Errorf("tokens do not increase: %s got %v after %v", client, token, l.granted))
	}
	l.uses[client], l.granted = amount, token
	l.grants++
	return l.grants
}

// giveBack records that a client's use has ended. It comes before the release.
func (l *ledger) giveBack(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inUse -= l.uses[client]
	delete(l.uses, client)
}

// count records what needs no check here.
func (l *ledger) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants++
}

func (l *ledger) read() (inUse, balance int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse, l.balance
}

// post writes the balance that follows the one that was read before.
func (l *ledger) post(read int, token recipes.Token) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token.Compare(l.written) < 0 {
		return fmt.Errorf("token is too old: %v is less than %v, which has already written", token, l.written)
	}
	if read != l.balance {
		l.fail(fmt.Errorf("a posting is lost: the balance is %d, and token %v has read %d", l.balance, token, read))
	}
	l.balance, l.written = read+1, token
	return nil
}
