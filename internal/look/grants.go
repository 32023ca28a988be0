package look

import (
	"math"
	"path"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// childCount is what a list of a directory says about its children: how many
// there are, and how many were created and deleted so far.
type childCount struct {
	directory version.Created // one that was created again counts from 0
	changes   int32           // its cversion: creates and deletes, in 32 bits that wrap
	children  int32
}

func childCountOf(stat *zk.Stat) childCount {
	return childCount{version.CreatedOf(stat), stat.Cversion, stat.NumChildren}
}

// since returns how many children were created and deleted after an earlier
// count of the same directory: exactly, if fewer than 2^30 of each.
func (t childCount) since(before childCount) (created, deleted int) {
	changes, more := int(t.changes-before.changes), int(t.children-before.children) // the first difference wraps as they do
	return max(0, (changes+more)/2), max(0, (changes-more)/2)
}

// last returns the sequence number of the child that was created last, without
// its highest bit, which the stat does not say: a server counts creates in 32
// bits, and tells twice that number less the children that there are.
func (t childCount) last() uint32 { return uint32(t.changes+t.children)/2 - 1 }

// turn says how far the grants of a line have come: nobody was granted whose
// sequence number is later. It is not known of some lines.
type turn struct {
	number uint32 // without its highest bit
	known  bool
}

// atFirst is the turn of a directory in which nothing was created yet.
var atFirst = turn{math.MaxUint32, true}

// turnOf returns the turn of a line whose directory has such a count. l is nil
// if nobody is in line.
func turnOf(l *inspect.Line, t childCount) turn {
	if l == nil {
		return turn{t.last(), true}
	}
	if l.Conflict != "" || l.Semaphore {
		return turn{}
	}
	number := func(c *inspect.Contender, less uint32) turn {
		node, ok := layout.Parse(path.Base(c.Path))
		return turn{uint32(node.Seq) - less, ok && node.Family != layout.KindLine} // in a line of a kind some may overtake others
	}
	switch {
	case len(l.Holders) == 1 && !l.Holders[0].Shared:
		return number(&l.Holders[0], 0)
	case len(l.Waiting) > 0: // so do readers that came later
		return number(&l.Waiting[0], 1)
	default:
		return turn{t.last(), number(&l.Holders[0], 0).known}
	}
}

// since returns how many numbers were passed after an earlier turn.
func (t turn) since(before turn) int {
	const bits = 31
	return max(0, int(int32((t.number-before.number)<<(32-bits))>>(32-bits)))
}

// stand is how a line stood when its directory was listed. Contenders that have
// left when they are read are still in it, as they are in the directory's
// count.
type stand struct {
	holders int
	turn    turn
}

func standOf(l *inspect.Line, counts map[string]childCount) stand {
	return stand{len(l.Holders), turnOf(l, counts[granting(l.Path, l.Semaphore, counts)])}
}

// granting returns the directory whose children are the holders of a line.
func granting(path string, semaphore bool, counts map[string]childCount) string {
	if leases := strings.TrimSuffix(path, "/") + "/leases"; semaphore {
		if _, ok := counts[leases]; ok {
			return leases
		}
	}
	return path
}

// granted returns how many grants a line has seen between two looks: now and
// before are the counts of its directory.
//
// In a semaphore, each permit that was created is one. In other lines each
// contender that has begun to hold is one: those that have left, and those that
// hold now, without those that held before. Some that have left may have given
// up. They are not counted if the line has not come to their numbers: of a lock
// that somebody holds all the time nobody else is granted.
func granted(h, earlier *history, now, before childCount) int {
	created, deleted := now.since(before)
	if h.semaphore {
		return created
	}
	n := max(0, deleted+h.stand.holders-earlier.stand.holders)
	if h.stand.turn.known && earlier.stand.turn.known {
		n = min(n, h.stand.turn.since(earlier.stand.turn))
	}
	return n
}
