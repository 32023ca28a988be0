package servers

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// At an address that the name server has not confirmed now there may be another
// ensemble, which has the same paths: two clients could hold one lock. The
// client may resume its session there, since no other ensemble has its id and
// password. Any other answer counts only if the ensemble is known: that the
// session is gone, or that another one was opened.
//
// The ensemble is known by the czxid and the ctime of the client's chroot, and
// without a chroot if its latest transaction is not below the latest one that
// the client has seen. What is compared is read after each connect, by one
// request, if the list has names that are looked up, or was replaced: see
// AsksRoot and NoteRoot. A server that the client moves to by its own wish is
// treated as a remembered address: it is only a matter of chance that it is
// called before it has to be. So is a server that a later list has brought,
// until the client has been there: half of a fleet may have that list, and the
// other half hold locks at the servers of the list before. If another ensemble
// is found there, its address is treated so from then on: nobody confirms an
// address that was given. If the client has never seen its chroot, it is not:
// nothing is held below it, and the client might never connect again.

// ensemble is what is known of the client's ensemble.
type ensemble struct {
	mu           sync.Mutex // guards what follows
	czxid, ctime int64      // of the chroot; 0: not known
	hadRoot      bool       // it was known
	seen         int64      // the latest transaction; 0: not known
	replaced     int        // how often it was another one, or has lost transactions, as far as that can be seen
}

// noteSeen notes the latest transaction that a session has seen, if it has seen
// any.
func (e *ensemble) noteSeen(zxid int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if zxid != 0 {
		e.seen = zxid
	}
}

// noteRoot notes what the chroot was created by. A session has read it, and has
// seen the transaction seen.
func (e *ensemble) noteRoot(czxid, ctime, seen int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seen != 0 && seen < e.seen || e.czxid != 0 && (czxid != e.czxid || ctime != e.ctime) {
		e.replaced++
	}
	e.czxid, e.ctime, e.seen = czxid, ctime, cmp.Or(seen, e.seen)
	e.hadRoot = e.hadRoot || czxid != 0
}

// histories returns a number that is another one when the history of the
// ensemble was replaced. It may be so, too, when a new session begins at a
// member that lags.
func (e *ensemble) histories() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.replaced
}

// differs returns how an ensemble differs from the one that is known, "" if it
// does not. stat is that of root, the chroot, if it has one.
func (e *ensemble) differs(root string, stat wire.Stat, latest int64) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.isKnownLocked(root):
		return "nothing is known yet"
	case root == "/" && latest < e.seen:
		return fmt.Sprintf("its latest transaction is 0x%x, this client has seen 0x%x", latest, e.seen)
	case root != "/" && (stat.Czxid != e.czxid || stat.Ctime != e.ctime):
		return fmt.Sprintf("its chroot %s was created by transaction 0x%x at %d, not by 0x%x at %d", root, stat.Czxid, stat.Ctime, e.czxid, e.ctime)
	}
	return ""
}

// isKnown reports whether an ensemble can be told from the client's.
func (e *ensemble) isKnown(root string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isKnownLocked(root)
}

// wasKnown reports whether that was ever so.
func (e *ensemble) wasKnown(root string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isKnownLocked(root) || e.hadRoot
}

func (e *ensemble) isKnownLocked(root string) bool {
	return e.seen != 0 && (root == "/" || e.czxid != 0)
}
