package look

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// Scope is a set of paths: what is at and below it may be read. The nil Scope
// has every path.
type Scope []string

// NewScope returns the scope of such roots. A root below another one adds
// nothing.
func NewScope(roots ...string) Scope {
	var s Scope
	for _, root := range slices.Compact(slices.Sorted(slices.Values(roots))) {
		if len(s) == 0 || !s.Has(root) {
			s = append(s, root)
		}
	}
	return s
}

// Has reports whether a path may be read.
func (s Scope) Has(at string) bool {
	return s == nil || slices.ContainsFunc(s, func(root string) bool { return isBelow(at, root) })
}

func isBelow(at, root string) bool {
	return root == "/" || at == root || strings.HasPrefix(at, root+"/")
}

// children returns the children of a path above the roots that lead to them. So
// a tree from / comes to every root, and reads nothing on the way.
func (s Scope) children(at string) (names []string, above bool) {
	if s.Has(at) {
		return nil, false
	}
	for _, root := range s {
		if root != at && isBelow(root, at) {
			name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(root, at), "/"), "/")
			names = append(names, name)
		}
	}
	return slices.Compact(names), len(names) > 0
}

// Reader reads what a scope has. It is an inspect.Reader that puts many reads
// into one request.
type Reader struct {
	Client *framework.Client
	Scope  Scope
	Large  *atomic.Bool // unless nil, becomes true when it has read a list of more than a megabyte
}

// Get reads a znode.
func (r Reader) Get(ctx context.Context, at string) ([]byte, *zk.Stat, error) {
	one, err := r.one(ctx, framework.Read{Path: at})
	return one.Data, one.Stat, err
}

// Children lists a znode.
func (r Reader) Children(ctx context.Context, at string) ([]string, *zk.Stat, error) {
	one, err := r.one(ctx, framework.Read{Path: at, Children: true})
	return one.Children, one.Stat, err
}

func (r Reader) one(ctx context.Context, read framework.Read) (framework.ReadResult, error) {
	results, err := r.ReadAll(ctx, read)
	if err != nil {
		return framework.ReadResult{}, err
	}
	return results[0], results[0].Err
}

// Sync lets later reads show what was written before.
func (r Reader) Sync(ctx context.Context, at string) error { return r.Client.Sync(ctx, at) }

// ReadAll reads znodes and lists.
func (r Reader) ReadAll(ctx context.Context, reads ...framework.Read) ([]framework.ReadResult, error) {
	results := make([]framework.ReadResult, len(reads))
	var inside []framework.Read
	var places []int
	for i, read := range reads {
		names, above := r.Scope.children(read.Path)
		switch {
		case above && read.Children:
			results[i] = framework.ReadResult{Children: names, Stat: &zk.Stat{}}
		case !r.Scope.Has(read.Path):
			results[i] = framework.ReadResult{Err: zk.ErrNoNode}
		default:
			inside, places = append(inside, read), append(places, i)
		}
	}
	if len(inside) == 0 {
		return results, nil
	}
	got, err := r.Client.ReadAll(ctx, inside...)
	if err != nil {
		return nil, err
	}
	for i, result := range got {
		results[places[i]] = result
		if r.Large != nil && isLarge(result.Children) {
			r.Large.Store(true)
		}
	}
	return results, nil
}
