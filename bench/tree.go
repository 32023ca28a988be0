package main

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// tree is znodes of 100 bytes below a directory: all of them in it, or in three
// levels of directories that have about as many children each.
type tree struct {
	znodes int // about as many, if in levels
	levels bool
}

func (t tree) String() string {
	if t.levels {
		return "three levels"
	}
	return "one directory"
}

// paths returns the paths of the tree, root first.
func (t tree) paths(root string) []string {
	all, above, fan := []string{root}, []string{root}, t.znodes
	for range map[bool]int{false: 1, true: 3}[t.levels] {
		if t.levels {
			fan = int(math.Round(math.Cbrt(float64(t.znodes))))
		}
		var level []string
		for _, dir := range above {
			for i := range fan {
				level = append(level, fmt.Sprintf("%s/znode-%06d", dir, i))
			}
		}
		all, above = append(all, level...), level
	}
	return all
}

// plantedAtOnce is the number of creates in a transaction.
const plantedAtOnce = 500

// plant creates znodes, in the order of their paths.
func plant(ctx context.Context, c *framework.Client, paths []string) error {
	data := bytes.Repeat([]byte("x"), 100)
	for len(paths) > 0 {
		n := min(len(paths), plantedAtOnce)
		var ops []any
		for _, path := range paths[:n] {
			ops = append(ops, &zk.CreateRequest{Path: path, Data: data, Acl: zk.WorldACL(zk.PermAll)})
		}
		if _, err := c.Multi(ctx, ops...); err != nil {
			return err
		}
		paths = paths[n:]
	}
	return nil
}

// fell deletes what plant has created.
func fell(ctx context.Context, c *framework.Client, paths []string) error {
	for len(paths) > 0 {
		n := max(len(paths)-plantedAtOnce, 0)
		var ops []any
		for i := len(paths) - 1; i >= n; i-- {
			ops = append(ops, &zk.DeleteRequest{Path: paths[i], Version: -1})
		}
		if _, err := c.Multi(ctx, ops...); err != nil {
			return err
		}
		paths = paths[:n]
	}
	return nil
}
