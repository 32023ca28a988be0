package managed_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// replaced is what CreateInstead has returned, and the error of the delete.
type replaced struct {
	managed.Created
	next    bool
	err     error
	removed error
}

// replace deletes a znode of line 0, patiently, calls between, and creates
// another znode there.
func (l *lines) replace(path string, between func()) replaced {
	l.Helper()
	finish := inside(l.sess).StartDelete(l.Context(), path, true)
	removed := make(chan error, 1)
	go func() { removed <- finish() }()
	between()
	created, next, err := inside(l.sess).CreateProtectedInstead(l.Context(), line(0), "lock-", nil, sequential, nil, path)
	return replaced{created, next, err, <-removed}
}

// A create that leaves with the delete of the znode that it replaces is one
// request, without a list: its number says whether anything was created in
// between.
func TestACreateInsteadOfAnother(t *testing.T) {
	for name, tt := range map[string]struct {
		other int32 // flags of a znode that another client creates in between; -1: none
		gone  bool  // which is deleted at once
		next  bool
	}{
		"nobody":                 {other: -1, next: true},
		"a contender":            {other: sequential},
		"one that leaves":        {other: sequential, gone: true},
		"a znode without number": {other: zk.FlagEphemeral},
		"a container":            {other: zk.FlagContainer},
	} {
		t.Run(name, func(t *testing.T) {
			inLines(t, 1, func(t *testing.T, l *lines) {
				first := l.joinAll(0)[0]
				if tt.other >= 0 {
					other, _ := connect(t, l.ens)
					path, err := other.Create(t.Context(), line(0)+"/other-", nil, tt.other)
					must(t, err)
					if tt.gone {
						must(t, other.Delete(t.Context(), path, -1))
					}
				}
				l.take()
				began := time.Now()
				got := l.replace(first.Path, func() {})
				must(t, errors.Join(got.err, got.removed))
				if took := time.Since(began); took != rtt {
					t.Errorf("took %v, want one round trip", took)
				}
				if got.next != tt.next || got.Children != nil || got.Stat != nil {
					t.Errorf("%+v, want no list, and next %v", got, tt.next)
				}
				l.want(map[testutil.Op]int{testutil.OpMulti: 1})
				if slices.Contains(l.below(0), first.Path) || !slices.Contains(l.below(0), got.Path) {
					t.Errorf("in line: %v", l.below(0))
				}
			})
		})
	}
}

// If the two are not one transaction, the create has its list: the directory
// may be another one by then.
func TestACreateAfterAnother(t *testing.T) {
	for name, tt := range map[string]struct {
		between func(l *lines)
		fault   testutil.Action // of the multi; the zero value: none
		refused bool
	}{
		"the delete has left":                       {between: func(l *lines) { time.Sleep(2 * time.Millisecond) }},
		"another create has taken the delete along": {between: func(l *lines) { _, _ = l.join(l.Context(), line(1)); time.Sleep(time.Microsecond) }},
		"the delete is refused":                     {between: func(l *lines) {}, fault: testutil.FailOperation(0, testutil.CodeNoAuth)},
		"the create is refused":                     {between: func(l *lines) {}, fault: testutil.FailOperation(1, testutil.CodeNoAuth), refused: true},
		"the answer is lost":                        {between: func(l *lines) {}, fault: testutil.DropAfter()},
		"the request is lost":                       {between: func(l *lines) {}, fault: testutil.DropBefore()},
	} {
		t.Run(name, func(t *testing.T) {
			inLines(t, 2, func(t *testing.T, l *lines) {
				first := l.joinAll(0)[0]
				if tt.fault != (testutil.Action{}) {
					fault := testutil.NewFault(testutil.Match{Op: testutil.OpMulti, Times: 1}, tt.fault)
					defer l.ens.Control(fault.Control)()
				}
				got := l.replace(first.Path, func() { tt.between(l) })
				if tt.refused {
					must(t, got.removed)
					if !errors.Is(got.err, zk.ErrNoAuth) || len(l.below(0)) != 0 {
						t.Errorf("%+v; in line: %v", got, l.below(0))
					}
					return
				}
				must(t, got.err)
				if got.next {
					t.Errorf("%s counts as the next after %s", got.Path, first.Path)
				}
				l.stands(&joined{Created: framework.Created(got.Created)})
			})
		})
	}
}

// Once the delete has been executed, the directory may be removed and made
// again, and the numbers begin anew: the next number says nothing then.
func TestACreateInADirectoryThatWasMadeAgain(t *testing.T) {
	inLines(t, 1, func(t *testing.T, l *lines) {
		first := l.joinAll(0)[0]
		other, _ := connect(t, l.ens)
		got := l.replace(first.Path, func() {
			time.Sleep(2 * time.Millisecond) // the delete has left
			l.ens.Latency(0)
			for len(l.below(0)) > 0 {
				time.Sleep(time.Millisecond)
			}
			must(t, other.Delete(context.Background(), line(0), -1))
			must(t, other.MakePersistentPath(t.Context(), line(0)))
			_, err := other.Create(t.Context(), line(0)+"/lock-", nil, sequential)
			must(t, err)
			l.ens.Latency(rtt / 2)
		})
		must(t, errors.Join(got.err, got.removed))
		if got.next || len(got.Children) != 2 {
			t.Errorf("%+v, want a list of two", got)
		}
	})
}
