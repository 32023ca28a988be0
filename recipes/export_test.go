package recipes

import "runtime"

// StallLoss keeps whoever tells l of its loss waiting, until resume is called.
func StallLoss(l *Lease) (resume func()) {
	l.mu.Lock()
	return l.mu.Unlock
}

// AwaitLoss returns when l's grant was lost, and before l is told.
func AwaitLoss(l *Lease) {
	for l.shares[0].Loss() == nil {
		runtime.Gosched()
	}
}

// IsOwnerKey reports whether a context is asked for its owner.
func IsOwnerKey(key any) bool { return key == ownerKey{} }
