package testutil_test

import "github.com/zkrecipes/zkrecipes/internal/wire"

func addWatch(path string, mode wire.WatchMode) *wire.AddWatchRequest {
	return &wire.AddWatchRequest{Path: path, Mode: mode}
}

func watchesOf(path string, kind wire.WatcherType) *wire.WatchesRequest {
	return &wire.WatchesRequest{Path: path, Type: kind}
}

// churn causes every kind of event at a znode and below it.
func (s *script) churn(path string) {
	s.a.do(wire.OpCreate, create(path, "", 0))
	s.a.do(wire.OpSetData, set(path, "1", -1))
	s.a.do(wire.OpSetData, set(path, "2", -1))
	s.a.do(wire.OpCreate, create(path+"/x", "", 0))
	s.a.do(wire.OpSetData, set(path+"/x", "1", -1))
	s.a.do(wire.OpCreate, create(path+"/x/y", "", 0))
	s.a.do(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpCreate, Request: create(path+"/x/z", "", 0)},
		wire.MultiOp{Op: wire.OpSetData, Request: set(path+"/x/z", "m", 0)},
		wire.MultiOp{Op: wire.OpDelete, Request: version(path+"/x/z", 1)},
		wire.MultiOp{Op: wire.OpDelete, Request: version(path+"/x/y", 0)},
	))
	s.a.do(wire.OpDelete, version(path+"/x", -1))
	s.a.do(wire.OpDelete, version(path, -1))
	s.both()
}

func (s *script) lastingWatches() {
	s.b.do(wire.OpAddWatch, addWatch("/lasting", wire.WatchPersistent)) // it does not exist yet
	s.a.do(wire.OpAddWatch, addWatch("/lasting", wire.WatchPersistent)) // watched by the client that writes
	s.churn("/lasting")
	s.churn("/lasting")
	s.b.do(wire.OpAddWatch, addWatch("/lasting", wire.WatchPersistent)) // the same watch again
	s.a.do(wire.OpRemoveWatches, watchesOf("/lasting", wire.WatcherAny))
	s.churn("/lasting")
	s.b.do(wire.OpRemoveWatches, watchesOf("/lasting", wire.WatcherAny))
	s.churn("/lasting")
	for _, path := range []string{"", "relative", "/lasting/", "/a\x00", "/none/of/it"} {
		s.b.do(wire.OpAddWatch, addWatch(path, wire.WatchPersistent))
		s.b.do(wire.OpRemoveWatches, watchesOf(path, wire.WatcherAny))
	}
	for _, mode := range []wire.WatchMode{-1, 2, 99} {
		s.b.do(wire.OpAddWatch, addWatch("/lasting", mode))
	}
	s.b.do(wire.OpPing, nil)
}

func (s *script) recursiveWatches() {
	s.b.do(wire.OpAddWatch, addWatch("/rec", wire.WatchPersistentRecursive))
	s.churn("/rec")
	s.churn("/rec")
	s.b.do(wire.OpAddWatch, addWatch("/", wire.WatchPersistentRecursive)) // events are not repeated
	s.churn("/rec")
	s.churn("/recycled") // not below /rec
	s.a.do(wire.OpSetData, set("/", "", -1))
	s.b.do(wire.OpRemoveWatches, watchesOf("/", wire.WatcherAny))
	s.a.do(wire.OpCreate, create("/rec", "", 0))
	s.b.do(wire.OpGetChildren, look("/rec", true)) // replaces one half of it
	s.a.do(wire.OpCreate, create("/rec/e", "", 1))
	s.a.do(wire.OpDelete, version("/rec/e", -1))
	s.a.do(wire.OpDelete, version("/rec", -1))
	s.both()
	s.churn("/rec")
	s.b.do(wire.OpRemoveWatches, watchesOf("/rec", wire.WatcherAny))
	s.churn("/rec")
}

// kindsOfWatches sets watches of different kinds on one path and one
// connection, in every order.
func (s *script) kindsOfWatches() {
	kinds := []func(string){
		func(p string) { s.b.do(wire.OpExists, look(p, true)) },
		func(p string) { s.b.do(wire.OpGetChildren, look(p, true)) },
		func(p string) { s.b.do(wire.OpAddWatch, addWatch(p, wire.WatchPersistent)) },
		func(p string) { s.b.do(wire.OpAddWatch, addWatch(p, wire.WatchPersistentRecursive)) },
	}
	for i, first := range kinds {
		for j, second := range kinds {
			if i == j {
				continue
			}
			s.a.do(wire.OpCreate, create("/both", "", 0))
			first("/both")
			second("/both")
			s.a.do(wire.OpSetData, set("/both", "1", -1))
			s.a.do(wire.OpCreate, create("/both/x", "", 0))
			s.a.do(wire.OpSetData, set("/both", "2", -1))
			s.a.do(wire.OpDelete, version("/both/x", -1))
			s.a.do(wire.OpDelete, version("/both", -1))
			s.b.do(wire.OpPing, nil)
			s.b.do(wire.OpRemoveWatches, watchesOf("/both", wire.WatcherChildren))
			s.b.do(wire.OpRemoveWatches, watchesOf("/both", wire.WatcherData))
		}
	}
}

func (s *script) removedWatches() {
	all := []wire.WatcherType{wire.WatcherChildren, wire.WatcherData, wire.WatcherAny}
	check := func(p *peer, path string) {
		for _, kind := range all {
			p.do(wire.OpCheckWatches, watchesOf(path, kind))
		}
	}
	check(s.b, "/none")
	s.b.do(wire.OpGetData, look("/a", true))
	check(s.b, "/a")
	check(s.a, "/a") // another client's watch
	for _, kind := range []wire.WatcherType{wire.WatcherChildren, wire.WatcherData, wire.WatcherData, wire.WatcherAny} {
		s.b.do(wire.OpRemoveWatches, watchesOf("/a", kind))
	}
	check(s.b, "/a")
	s.b.do(wire.OpGetChildren, look("/a", true))
	s.b.do(wire.OpExists, look("/a", true))
	check(s.b, "/a")
	s.b.do(wire.OpRemoveWatches, watchesOf("/a", wire.WatcherChildren))
	s.a.do(wire.OpCreate, create("/a/seen", "", 0))
	s.a.do(wire.OpDelete, version("/a/seen", -1))
	s.a.do(wire.OpSetData, set("/a", "still watched", -1))
	s.both()
	s.b.do(wire.OpRemoveWatches, watchesOf("/a", wire.WatcherAny))
	s.b.do(wire.OpAddWatch, addWatch("/a", wire.WatchPersistent))
	check(s.b, "/a")
	check(s.b, "/a/seen")
	s.b.do(wire.OpRemoveWatches, watchesOf("/a", wire.WatcherData)) // half of it
	check(s.b, "/a")
	s.a.do(wire.OpSetData, set("/a", "", -1))
	s.a.do(wire.OpCreate, create("/a/seen", "", 0))
	s.a.do(wire.OpDelete, version("/a/seen", -1))
	s.both()
	s.b.do(wire.OpRemoveWatches, watchesOf("/a", wire.WatcherAny))
	s.b.do(wire.OpAddWatch, addWatch("/a", wire.WatchPersistentRecursive))
	check(s.b, "/a")
	check(s.b, "/a/seen")
	s.b.do(wire.OpRemoveWatches, watchesOf("/a/seen", wire.WatcherAny))
	s.b.do(wire.OpRemoveWatches, watchesOf("/a", wire.WatcherAny))
	for _, kind := range []wire.WatcherType{-1, 0, 4, 5, 99} {
		s.b.do(wire.OpCheckWatches, watchesOf("/a", kind))
		s.b.do(wire.OpRemoveWatches, watchesOf("/a", kind))
	}
	s.b.do(wire.OpPing, nil)
}

// watchesBelowATree removes watches of one event below a recursive one, which
// stays whole, and at its root, where a removal takes a half of it.
func (s *script) watchesBelowATree() {
	change := func() {
		s.a.do(wire.OpSetData, set("/tree/x", "1", -1))
		for _, path := range []string{"/tree/x/y", "/tree/none"} {
			s.a.do(wire.OpCreate, create(path, "", 0))
			s.a.do(wire.OpDelete, version(path, -1))
		}
		s.both()
	}
	for _, root := range []string{"/tree", "/"} {
		s.a.do(wire.OpCreate, create("/tree", "", 0))
		s.a.do(wire.OpCreate, create("/tree/x", "", 0))
		s.b.do(wire.OpAddWatch, addWatch(root, wire.WatchPersistentRecursive))
		for _, kind := range []wire.WatcherType{wire.WatcherChildren, wire.WatcherData, wire.WatcherAny} {
			s.b.do(wire.OpGetData, look("/tree/x", true))
			s.b.do(wire.OpGetChildren, look("/tree/x", true))
			s.b.do(wire.OpExists, look("/tree/none", true))
			for _, path := range []string{"/tree/x", "/tree/x", "/tree/none", "/tree/never"} {
				s.b.do(wire.OpRemoveWatches, watchesOf(path, kind))
			}
			change()
		}
		s.b.do(wire.OpGetChildren, look(root, true)) // replaces one half of it
		for _, kind := range []wire.WatcherType{wire.WatcherChildren, wire.WatcherChildren, wire.WatcherData, wire.WatcherAny} {
			s.b.do(wire.OpRemoveWatches, watchesOf(root, kind))
			change()
		}
		s.a.do(wire.OpDelete, version("/tree/x", -1))
		s.a.do(wire.OpDelete, version("/tree", -1))
		s.both()
	}
}

// keptWatches sends setWatches for what is watched already: the event of a
// change that was missed does not use up that watch.
func (s *script) keptWatches() {
	s.b.do(wire.OpExists, look("/kept", true))
	s.b.do(wire.OpExists, look("/", true))
	s.b.do(wire.OpGetChildren, look("/", true))
	past := &wire.SetWatchesRequest{Child: []string{"/kept", "/"}, Data: []string{"/kept", "/"}, Exist: []string{"/"}}
	s.b.await(s.b.send(wire.OpSetWatches, past), wire.OpSetWatches, "setWatches on what is watched")
	s.a.do(wire.OpCreate, create("/kept", "", 0))
	s.a.do(wire.OpSetData, set("/", "", -1))
	s.a.do(wire.OpDelete, version("/kept", -1))
	s.both()
}

func (s *script) setWatches2() {
	s.a.do(wire.OpCreate, create("/r2", "", 0))
	seen := s.log.base
	s.a.send(wire.OpPing, nil)
	if head, _, err := s.a.next(); err == nil {
		seen = head.Zxid
	}
	s.a.do(wire.OpCreate, create("/r2/x", "", 0))
	s.a.do(wire.OpSetData, set("/r2", "changed", -1))
	for _, zxid := range []int64{seen, 1 << 60} {
		p := s.peer("R", patience)
		xid := p.send(wire.OpSetWatches2, &wire.SetWatches2Request{
			SetWatchesRequest: wire.SetWatchesRequest{
				RelativeZxid: zxid,
				Data:         []string{"/r2", "/r2/none"},
				Exist:        []string{"/r2/x", "/r2/later"},
				Child:        []string{"/r2", "/r2/none"},
			},
			Persistent: []string{"/r2/x", "/r2/gone"}, // these get no events for the past
			Recursive:  []string{"/r2/x/deep"},
		})
		p.await(xid, wire.OpSetWatches2, "setWatches2")
		s.a.do(wire.OpCreate, create("/r2/later", "", 0))
		s.a.do(wire.OpSetData, set("/r2/x", "1", -1))
		s.a.do(wire.OpSetData, set("/r2/x", "2", -1))
		s.a.do(wire.OpCreate, create("/r2/x/deep", "", 0))
		s.a.do(wire.OpCreate, create("/r2/x/deep/deeper", "", 0))
		s.a.do(wire.OpDelete, version("/r2/x/deep/deeper", -1))
		s.a.do(wire.OpDelete, version("/r2/x/deep", -1))
		s.a.do(wire.OpDelete, version("/r2/later", -1))
		p.do(wire.OpPing, nil)
		p.do(wire.OpCloseSession, nil)
	}
}

// hiddenEvents: a client that may not read a znode gets no event, and its watch
// is used up.
func (s *script) hiddenEvents() {
	p := s.peer("H", patience)
	p.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("erin:secret")})
	for range 2 {
		s.b.do(wire.OpExists, look("/hidden", true))
		s.b.do(wire.OpGetChildren, look("/", true))
		p.do(wire.OpExists, look("/hidden", true))
		s.secure(p, "/hidden", acl(31, "auth", ""))
		p.do(wire.OpPing, nil)
		s.both()
		s.b.do(wire.OpExists, look("/hidden", true))
		p.do(wire.OpSetData, set("/hidden", "1", -1))
		s.both()
		s.b.do(wire.OpExists, look("/hidden", true))
		p.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/hidden", ACL: anyone, Version: -1})
		p.do(wire.OpSetData, set("/hidden", "2", -1))
		s.both()
		s.b.do(wire.OpGetChildren, look("/hidden", true))
		s.b.do(wire.OpExists, look("/hidden/x", true))
		p.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/hidden", ACL: acl(31, "auth", ""), Version: -1})
		p.do(wire.OpCreate, create("/hidden/x", "", 0))
		s.both()
		s.b.do(wire.OpExists, look("/hidden/x", true))
		p.do(wire.OpDelete, version("/hidden/x", -1))
		p.do(wire.OpDelete, version("/hidden", -1))
		s.both()
		s.b.do(wire.OpAddWatch, addWatch("/hidden", wire.WatchPersistent))
		s.b.do(wire.OpAddWatch, addWatch("/", wire.WatchPersistentRecursive))
	}
	s.b.do(wire.OpRemoveWatches, watchesOf("/hidden", wire.WatcherAny))
	s.b.do(wire.OpRemoveWatches, watchesOf("/", wire.WatcherAny))
	s.secure(p, "/hidden", acl(31, "auth", ""))
	seen := &wire.SetWatchesRequest{Data: []string{"/hidden", "/hidden/none"}, Exist: []string{"/hidden"}, Child: []string{"/hidden"}}
	s.b.await(s.b.send(wire.OpSetWatches, seen), wire.OpSetWatches, "setWatches on what is hidden")
	p.do(wire.OpDelete, version("/hidden", -1))
	p.do(wire.OpCloseSession, nil)
}
