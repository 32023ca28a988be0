package sim

import (
	"strconv"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// tokensLocked checks the fencing token of a grant.
func (l *ledger) tokensLocked(t *holding, known, there bool) {
	r := t.of
	switch {
	case r.limit > 0: // a semaphore's tokens have no order
		return
	case t.root != t:
		if t.token != t.root.token {
			l.wrongLocked("%v under %v has token %v", t, t.root, t.token)
		}
		return
	}
	if there && czxid(t.token) != t.dir {
		l.wrongLocked("%v has a token of another directory than its own, %x", t, t.dir)
	}
	for _, o := range r.holdings {
		if o.root == o && !o.shared && !t.shared && o.token == t.token {
			l.wrongLocked("%v has the token of %v", t, o)
		}
	}
	if known {
		before := r.highest
		if t.shared { // others who share may have the same token, or a later one
			before = r.alone
		}
		if t.token.Compare(before) <= 0 {
			l.wrongLocked("%v has a token that is not above %v", t, before)
		}
		r.highest = later(r.highest, t.token)
		if !t.shared {
			r.alone = later(r.alone, t.token)
		}
	}
}

func later(a, b recipes.Token) recipes.Token {
	if a.Compare(b) > 0 {
		return a
	}
	return b
}

// czxid returns the directory's czxid that a token contains.
func czxid(t recipes.Token) int64 {
	n, _ := strconv.ParseInt(t.String()[:16], 16, 64)
	return n
}

// overwrittenLocked checks the data that guarded writes write to, whatever the
// writers were told.
func (l *ledger) overwrittenLocked(r *resource) {
	before, there := l.ens.Stat(r.data)
	data, _ := l.ens.Data(r.data)
	if after, _ := l.ens.Stat(r.data); !there || after.Mzxid != before.Mzxid { // a write is in flight
		return
	}
	if token, err := recipes.ParseToken(string(data)); err == nil { // no error: somebody has written
		l.overwroteLocked(r, before.Mzxid, token)
	}
}

// overwroteLocked checks that a write was not applied after a later holder's
// grant. A holder of the same znode is not later, by the ensemble's
// transactions.
func (l *ledger) overwroteLocked(r *resource, zxid int64, token recipes.Token) {
	if r.limit > 0 || zxid <= r.written {
		return
	}
	r.written = zxid
	for _, t := range r.holdings {
		if t.root == t && !t.shared && token.Compare(t.token) < 0 && zxid > t.fence {
			l.wrongLocked("who had token %v wrote at %x, after %v was granted", token, zxid, t)
		}
	}
}

// read checks that a holder has read no state of before its grant: zxid is the
// latest write that it was shown. Those who share may write at once.
func (l *ledger) read(t *holding, zxid int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
	l.logLocked("%v: read the write at %x", t, zxid)
	if t.of.limit == 0 && !t.shared && zxid < t.fence && l.knownLocked(t) && !l.voidLocked(t) {
		l.wrongLocked("%v has read the write at %x, and %x precedes its grant", t, zxid, t.fence)
	}
}

// fencedLocked checks that no guarded write was applied after a later holder's
// grant.
func (l *ledger) fencedLocked(r *resource) {
	if r.limit > 0 {
		return
	}
	for _, o := range r.ops {
		if o.in.kind != write || o.in.unknown {
			continue
		}
		w := r.holdings[o.in.id]
		for _, t := range r.holdings {
			if t.root == t && !t.shared && t.znode != w.znode && t.token.Compare(w.token) > 0 && t.after > 0 && o.in.zxid >= t.after {
				l.wrongLocked("%v wrote at %x, after %v was granted", w, o.in.zxid, t)
			}
		}
	}
}
