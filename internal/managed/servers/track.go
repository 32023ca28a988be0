package servers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/retry"
)

// A client may follow the config of its ensemble, a znode. The members that it
// names are called in addition to the servers that were given, which no config
// removes: behind a load balancer the given address is the only right one
// (CURATOR-568). The latest config counts, and not the first (CURATOR-551).
//
// Where nobody reconfigures the ensemble, the version is always 0, and each
// member shows what its own file says. In the course of an upgrade the files
// differ. So what was shown at one version within an hour counts together. A
// later version replaces it, and so does whatever is shown in another history:
// of that ensemble, or of another one that a given address leads to now. An
// earlier version is that of a member that lags, unless the history was
// replaced. A read after a sync tells which.
//
// The client leaves a member that was removed from the config, even if it was
// given: it may be stopped at any time. It does not move for a member that was
// added.

// lookEach is how long it takes until what was shown an hour ago is forgotten,
// and until what could not be read is read again.
const lookEach = time.Minute

// track follows the config until the client begins to close.
func (s *Servers) track() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.tasks.Go(func() {
		select {
		case <-s.closing:
		case <-ctx.Done():
		}
		cancel()
	})
	var t tracked
	back := retry.Exponential(s.cfg.Timeout/8, lookEach, math.MaxInt)()
	for ctx.Err() == nil {
		shown, err := s.cfg.Source.Follow(ctx)
		for err == nil {
			look := time.After(random.About(max(s.cfg.Timeout, lookEach)))
			select {
			case <-ctx.Done():
				return
			case <-look:
				if t.unsure != nil {
					s.onShown(ctx, &t, t.unsure)
				}
				t.forget(s.ensemble.histories())
				s.useMembers(ctx, &t, serverlist.SameVersion) // without what was shown an hour ago
			case one, ok := <-shown:
				if err = one.Err; !ok {
					err = errNotFollowed
				}
				if err == nil {
					s.onShown(ctx, &t, one.Config)
					back.Reset()
				}
			}
		}
		if ctx.Err() != nil {
			return
		}
		s.cfg.Log.Debug("cannot follow the config of the ensemble", zap.Error(err))
		if closed.Within(back.NextBackOff(), s.closing) {
			return
		}
	}
}

var errNotFollowed = errors.New("the watch has ended")

// onShown takes up what a member has shown.
func (s *Servers) onShown(ctx context.Context, t *tracked, config []byte) {
	t.unsure = nil
	if t.none = len(config) == 0; t.none {
		return
	}
	how, err := s.addShown(t, config, false)
	if how == serverlist.Older {
		one, failure := s.cfg.Source.Again(ctx)
		if failure != nil || len(one.Config) == 0 {
			t.unsure = config
			return
		}
		how, err = s.addShown(t, one.Config, true)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.cfg.Log.Warn("the config of the ensemble is not used", zap.Error(err))
	default:
		s.useMembers(ctx, t, how)
	}
}

func (s *Servers) addShown(t *tracked, config []byte, anew bool) (serverlist.Change, error) {
	names, version, wrong, err := serverlist.Members(config, s.cfg.TLS != nil)
	if err != nil {
		return serverlist.SameVersion, err
	}
	if local := slices.IndexFunc(names, serverlist.IsLocal); local >= 0 && !s.list.HasLocal() {
		wrong = fmt.Errorf("config: %s: a local address, and none was given", names[local])
	}
	if wrong != nil && t.isNew(wrong.Error()) {
		s.cfg.Log.Warn("a member in the config of the ensemble is left out", zap.Error(wrong))
	}
	return t.add(names, version, s.ensemble.histories(), anew, time.Now()), nil
}

// useMembers looks up the members that count, and makes them part of the list.
func (s *Servers) useMembers(ctx context.Context, t *tracked, how serverlist.Change) {
	names, before := t.all(time.Now()), s.list.MemberNames()
	if !s.list.HasLocal() {
		names = slices.DeleteFunc(names, serverlist.IsLocal)
	}
	if slices.Equal(names, before) && how == serverlist.SameVersion {
		return
	}
	found, err := s.list.LookUpAll(ctx, s.closing, names, s.cfg.Timeout/3)
	if err != nil {
		return // the client closes
	}
	s.list.SetMembers(names, found, how)
	if !slices.Equal(names, before) {
		s.cfg.Log.Info("the ensemble has other members", zap.Stringer("from", listText(before)), zap.Stringer("to", listText(names)),
			zap.String("version", fmt.Sprintf("0x%x", t.version)))
	}
	s.cfg.Source.Changed()
}
