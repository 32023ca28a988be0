package bubble

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// Narrow gives a client the least limit of framework.WithMaxEphemerals.
var Narrow = framework.WithMaxEphemerals(16384)

var filled atomic.Int64 // numbers the znodes of Fill

// Fill creates ephemeral znodes below / in the client's session until not even
// one with a short name is allowed, and returns their paths.
func Fill(t T, c *framework.Client) (paths []string) {
	t.Helper()
	for _, length := range []int{1000, 100, 10, 1} {
		for {
			path := fmt.Sprint("/", strings.Repeat("f", length), filled.Add(1))
			_, err := c.Create(context.Background(), path, nil, zk.FlagEphemeral)
			if errors.Is(err, framework.ErrTooLarge) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if paths = append(paths, path); len(paths) > 10000 {
				t.Fatal("the session has no limit") // with WithoutNewOperations there is none
			}
		}
	}
	return paths
}
