package barrier

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// This file tells the ready of a round that goes on from one that was left
// behind, as by a crash of the last member.
//
// The rule: ready counts only while a member is there that is not younger, by
// czxid, and was not late. Equal means that both were created in one
// transaction. One that was late can be older than the ready of a later round,
// to which it does not belong.
//
//   - Whoever opens a round stands in the directory and creates ready later. A
//     round of this library keeps such a member until its end: see Leave.
//   - No member can become older than a ready that exists. So once none of its
//     members is there, none ever is again: a ready that was found to be left
//     behind stays so, however late that is acted upon, and whatever another
//     member of the ensemble shows meanwhile. For the same reason ready is read
//     before the members are listed. A member that came in between, before a
//     newer ready, would be missing in the list otherwise.
//   - A member that waits takes the creation of ready as valid, without a look:
//     it was there before, so it is older itself.
//
// ZooKeeper deletes by path and version, and by no czxid. Every ready begins at
// version 0. A plain delete at version 0 of what was found to be left behind
// can hit the ready of the next round, if it is executed late. So it is marked
// first: its data are set, at the version that was read. The answer has the
// czxid of what was marked. If that is another one, a round goes on that bears
// a mark, which does no harm. Otherwise it is deleted at the version after the
// mark, which no ready has that was not marked. The member's own znode is
// created in the same transaction, so that it never stands beside a ready that
// is older than itself: neighbors count ready as a member.
//
// What remains: two members, perhaps of one client, have judged the same ready.
// The mark of one and the delete of the other are executed late, in this order,
// after a third has deleted that ready and the next round has begun. Then that
// round's ready is deleted; a member that has not heard of it yet opens the
// round again if all members are still there.

const (
	readyName  = "ready"
	memberName = "member-" // a tag, a dash and a sequence number follow
	lateName   = "late"
	tagSize    = 12
)

// newTag returns the tag of an Enter. All znodes that it makes have it. If an
// answer is lost, the create is repeated, and the first one may be executed
// late: a second znode stands then until the client has removed it. Without the
// tag it would count as another member.
//
// The create is repeated only after a sync and a list in the same session have
// not shown its znode. ZooKeeper executes the requests of a session in their
// order, and refuses those that come later by an earlier connection, so the
// first create is never executed then. If it were, and a round began with its
// znode and ended before the second one is there, the member would wait for the
// next round.
func newTag() string {
	id := random.ID()
	return id[len(id)-tagSize:]
}

// cutTag splits the name of a member of this library, which was not late.
func cutTag(name string) (tag string, seq int32, ok bool) {
	_, base, _ := layout.CutProtection(name)
	rest, ok := strings.CutPrefix(base, memberName)
	if !ok || len(rest) <= tagSize || rest[tagSize] != '-' {
		return "", 0, false
	}
	seq, ok = layout.ParseSequence(rest[tagSize+1:])
	return rest[:tagSize], seq, ok
}

// sameMember reports whether two names are of znodes of one Enter.
func sameMember(a, b string) bool {
	one, _, ours := cutTag(a)
	other, _, theirs := cutTag(b)
	return a == b || ours && theirs && one == other
}

// distinct returns one name of each member, own of its own.
func distinct(own string, names []string) (members []string) {
	members = append(members, own)
	for _, name := range names {
		if !slices.ContainsFunc(members, func(m string) bool { return sameMember(m, name) }) {
			members = append(members, name)
		}
	}
	return members
}

// mark is the data of a ready that was left behind. Nobody reads it but people.
var mark = []byte("left behind")

// stats reads znodes in the directory by one request, and returns the stats of
// those that are there and ephemeral. Others are no members. It fails if one
// may not be read: nobody knows whether that is a member.
func (d *Double) stats(ctx context.Context, sess *managed.Session, names []string) (map[string]*zk.Stat, error) {
	reads := make([]request.Read, len(names))
	for i, name := range names {
		reads[i].Path = layout.Join(d.path, name)
	}
	results, err := sess.ReadAll(ctx, reads...)
	stats := make(map[string]*zk.Stat, len(names))
	for i, r := range results {
		switch {
		case errors.Is(r.Err, zk.ErrNoNode): // it left
		case r.Err != nil:
			return nil, r.Err
		case r.Stat.EphemeralOwner != 0:
			stats[names[i]] = r.Stat
		}
	}
	return stats, err
}

// judge returns the stat of ready, nil if there is none, and the first name of
// a member that is not younger and was not late, "" if ready was left behind.
func (d *Double) judge(ctx context.Context, sess *managed.Session) (ready *zk.Stat, older string, err error) {
	found, ready, err := sess.Exists(ctx, d.ready)
	if err != nil || !found {
		return nil, "", err
	}
	names, err := d.list(ctx, sess)
	if err != nil {
		return nil, "", err
	}
	names = membersIn(names)
	slices.Sort(names)
	stats, err := d.stats(ctx, sess, names)
	if err != nil {
		return nil, "", err
	}
	for _, name := range names {
		if stat := stats[name]; stat != nil && stat.Czxid <= ready.Czxid {
			return ready, name, nil
		}
	}
	return ready, "", nil
}

// withoutOthers returns names without those of znodes that are no members, such
// as a directory that somebody keeps there. Names of this library are believed,
// and the others read: see stats.
func (d *Double) withoutOthers(ctx context.Context, sess *managed.Session, names []string) ([]string, error) {
	var others []string
	for _, name := range names {
		if _, _, ours := cutTag(name); !ours && !isLate(name) && name != readyName {
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return names, nil
	}
	stats, err := d.stats(ctx, sess, others)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.Contains(others, name) && stats[name] == nil
	}), err
}

// remover marks a ready that was left behind, and returns the operation that
// deletes it. If it is gone meanwhile, or another one is there, it returns
// errAgain.
func (d *Double) remover(ctx context.Context, sess *managed.Session, ready *zk.Stat) (*zk.DeleteRequest, error) {
	stat, err := sess.Set(ctx, d.ready, mark, ready.Version)
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		return nil, errAgain
	case err != nil:
		return nil, err
	case version.CreatedOf(stat) != version.CreatedOf(ready):
		return nil, errAgain
	}
	d.client.Logger().Info("removing the ready znode of a round that has crashed", zap.String("path", d.client.Resolve(d.path)), zap.String("label", d.cfg.Label))
	return &zk.DeleteRequest{Path: d.ready, Version: stat.Version}, nil
}

// sweep deletes ready if it was left behind.
func (d *Double) sweep(ctx context.Context, sess *managed.Session) error {
	ready, older, err := d.judge(ctx, sess)
	if err != nil || ready == nil || older != "" {
		return err
	}
	remove, err := d.remover(ctx, sess, ready)
	if err == nil {
		err = sess.Delete(ctx, remove.Path, remove.Version)
	}
	if errors.Is(err, errAgain) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		return nil // somebody else was quicker
	}
	return err
}

// list returns the names in the directory, none if it is missing.
func (d *Double) list(ctx context.Context, sess *managed.Session) ([]string, error) {
	names, _, err := sess.Children(ctx, d.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// membersIn returns the members in a list that a round waits for: those that
// were not late.
func membersIn(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == readyName || isLate(name) })
}

// isLate reports whether a name is that of a member which has entered a round
// that was open. Such a member is younger than ready. It does not count for the
// next round, and does not keep ready valid.
func isLate(name string) bool {
	_, base, ok := layout.CutProtection(name)
	return ok && base == lateName
}

// lastOf returns which of some members stays until all others have left. That
// is the oldest one: if any is older than ready, it is. A member can be younger
// that was not late, for a moment: see join. If a neighbor is among them it is
// the one with the lowest name, for which neighbors wait.
func lastOf(members []string) string {
	last, oldest := slices.Min(members), int32(0)
	for i, name := range members {
		_, seq, ours := cutTag(name)
		if !ours {
			return slices.Min(members)
		}
		if i == 0 || layout.Compare(seq, oldest) < 0 {
			last, oldest = name, seq
		}
	}
	return last
}
