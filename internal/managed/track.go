package managed

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
)

// configPath is the znode that shows the config of the ensemble. It is outside
// of each chroot.
const configPath = "/zookeeper/config"

// Track returns functions that follow and read the config of the ensemble of a
// client, a *Client, for WithEnsembleTracking. Config does not know of clients.
func Track(client any) servers.Tracking {
	whole := &Client{shared: client.(*Client).core()}
	return servers.Tracking{
		Follow: func(ctx context.Context) (<-chan servers.Shown, error) {
			return WatchData(ctx, whole, configPath, func(_ bool, data []byte, _ *zk.Stat, err error) servers.Shown {
				return servers.Shown{Config: data, Err: err}
			})
		},
		Again: func(ctx context.Context) (servers.Shown, error) {
			if err := whole.Sync(ctx, configPath); err != nil {
				return servers.Shown{}, err
			}
			data, _, err := whole.Get(ctx, configPath)
			if errors.Is(err, zk.ErrNoNode) {
				return servers.Shown{}, nil
			}
			return servers.Shown{Config: data}, err
		},
	}
}
