package watches

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
)

// What GoneBehind must know of both watches. Each case lacks one thing.
func TestGoneBehind(t *testing.T) {
	s, other := &Watches{}, &Watches{}
	on, later := &link.Link{}, &link.Link{}
	for name, tt := range map[string]struct {
		spoil func(own, a *Armed)
		want  bool
	}{
		"deleted behind both answers":            {func(_, _ *Armed) {}, true},
		"own has fired since":                    {func(own, _ *Armed) { own.firedAt = 9 }, true},
		"missing behind the own answer":          {missing, true},
		"missing before the own answer":          {func(own, a *Armed) { missing(own, a); own.reading.order = 5 }, false},
		"deleted before the own answer":          {func(own, _ *Armed) { own.reading.order = 8 }, false},
		"deleted before its answer":              {func(_, a *Armed) { a.reading.order = 8 }, false},
		"fired by another event":                 {func(_, a *Armed) { a.deletedOn = nil }, false},
		"fired by no event":                      {func(_, a *Armed) { a.deletedOn, a.firedAt = nil, 0 }, false},
		"deleted on a later connection":          {func(_, a *Armed) { a.deletedOn = later }, false},
		"read on a later connection":             {func(_, a *Armed) { a.reading.on = later }, false},
		"read and deleted on a later connection": {func(_, a *Armed) { a.reading.on, a.deletedOn = later, later }, false},
		"missing on a later connection":          {func(own, a *Armed) { missing(own, a); a.reading.on = later }, false},
		"own was read on a later connection":     {func(own, _ *Armed) { own.reading.on = later }, false},
		"own has no answer":                      {func(own, _ *Armed) { own.reading = reading{} }, false},
		"own has no answer, nor has the other":   {func(own, a *Armed) { own.reading, a.reading, a.deletedOn = reading{}, reading{}, nil }, false},
		"own is missing":                         {func(own, _ *Armed) { own.err = zk.ErrNoNode }, false},
		"it may not be read":                     {func(_, a *Armed) { a.err, a.reading, a.deletedOn = zk.ErrNoAuth, reading{}, nil }, false},
		"its watch was armed by another caller":  {func(_, a *Armed) { a.fresh = false }, false},
		"the own watch was armed by another one": {func(own, _ *Armed) { own.fresh = false }, false},
		"both are of different sessions":         {func(own, _ *Armed) { own.session = other }, false},
	} {
		t.Run(name, func(t *testing.T) {
			own := &Armed{Watch: &Watch{session: s, reading: reading{on, 4}}, fresh: true}
			a := &Armed{Watch: &Watch{session: s, reading: reading{on, 5}, deletedOn: on, firedAt: 7}, fresh: true}
			tt.spoil(own, a)
			if got := a.GoneBehind(own); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// missing has the znode be missing when it is read: no event comes.
func missing(_, a *Armed) { a.err, a.deletedOn, a.firedAt = zk.ErrNoNode, nil, 0 }
