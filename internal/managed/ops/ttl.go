package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// longestTTL is the longest time to live that the protocol can express.
const longestTTL = time.Duration(wire.MaxTTL) * time.Millisecond

// CreateTTL is framework.Client.CreateTTL.
func (w Scope) CreateTTL(ctx context.Context, path string, data []byte, flags int32, ttl time.Duration, acl []zk.ACL) (string, error) {
	if ttl < time.Millisecond || ttl > longestTTL {
		return "", &zkerr.Op{Op: request.NameCreate, Path: path, Err: fmt.Errorf("time to live %v: must be from 1ms to %v", ttl, longestTTL)}
	}
	if len(acl) == 0 {
		acl = w.Client.Config.ACL
	}
	return w.createOnce(ctx, path, data, flags, request.CreateSize(data, acl)+request.Int64Size, func(conn *zk.Conn, full string) (string, error) {
		made, err := conn.CreateTTL(full, data, flags, acl, ttl)
		if err == nil {
			err = request.CheckMade(full, made, flags)
		}
		return made, err
	})
}
