package servers

import (
	"testing"

	"go.uber.org/zap"
)

// A server that a list has brought is doubted until the client was there, also
// when later lists have replaced that one.
func TestFreshServers(t *testing.T) {
	f := newForeign([]string{"a:1"})
	isFresh := func(name string) bool {
		_, fresh := f.standingOf(Server{Name: name, Address: name})
		return fresh
	}
	if isFresh("a:1") {
		t.Error("a server of the first list is doubted")
	}
	f.noteReplaced([]string{"a:1"})
	f.noteKnown(Server{Name: "c:1", Address: "c:1"}, true)
	f.noteReplaced([]string{"a:1", "b:1", "c:1"})
	for name, want := range map[string]bool{"a:1": false, "b:1": true, "c:1": false, "d:1": true} {
		if isFresh(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
	f.noteReplaced([]string{"c:1", "d:1"})
	if !isFresh("b:1") || isFresh("c:1") {
		t.Error("a server that was picked two lists ago is not doubted any more")
	}
}

// A member that only the ensemble names is doubted as a remembered address is:
// if another ensemble is found there, the client may still move to it later. A
// server of a list is doubted as one that the client has chosen, also if the
// list has dropped it since it was picked.
func TestAMemberThatOnlyTheEnsembleNames(t *testing.T) {
	s := New(Config{Names: []string{"a:1"}, Root: "/", Log: zap.NewNop()}, nil, nil, nil)
	s.NoteRoot(0, 0, 1)
	for to, want := range map[Server]bool{
		{Name: "a:1"}: false, {Name: "a:1", Remembered: true}: false,
		{Name: "tracked:1", Remembered: true}: false,
		{Name: "dropped:1"}:                   true,
	} {
		if got := s.doubted(to); got.Chosen != want || got.Remembered != to.Remembered {
			t.Errorf("%+v: %+v", to, got)
		}
	}
	s.NoteConnected(Server{Name: "tracked:1", Remembered: true})
	if len(s.foreign.known) != 1 {
		t.Errorf("known are %v", s.foreign.known)
	}
}
