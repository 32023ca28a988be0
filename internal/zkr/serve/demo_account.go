package serve

import (
	"errors"
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// account is the shared resource of the demo: a balance that clients read,
// think about and write back, so that two clients at once lose a posting. It
// remembers the highest fencing token that has written, as a protected resource
// should, and refuses lower ones.
type account struct {
	mu      sync.Mutex // guards what follows; it makes single reads and writes atomic, and nothing more
	balance int
	highest recipes.Token
}

var errOldToken = errors.New("token is too old")

func (l *account) read() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.balance
}

func (l *account) write(balance int, token recipes.Token) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token.Compare(l.highest) < 0 {
		return fmt.Errorf("%w: %v is less than %v, which has already written", errOldToken, token, l.highest)
	}
	l.balance, l.highest = balance, token
	return nil
}
