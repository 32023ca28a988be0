// Package missing is for a request that finds no znode where one has to be: the
// directory of what it creates, or the client's chroot.
//
// A create that misses its directory makes that, and creates again. Somebody
// may remove the directory in between: the server removes an empty container,
// and another client may tidy up. Then it is made once more, but not for ever.
// [Create] is the whole loop. A loop that does more than this has a [Directory]
// and calls Make.
package missing

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/turns"
)

// most is how often a directory is made for one create, which is tried once
// more than that.
const most = 9

// A Directory counts the rounds in which the directory of one create was made
// and was gone again. The zero value is ready.
type Directory struct{ made int }

// Make makes the directory at path after a create has failed with err, which is
// zk.ErrNoNode. make says as what, in which session or view, and perhaps for
// how many callers together. Make fails with the error of make, or with err if
// it has made the directory nine times.
func (d *Directory) Make(path string, err error, make func() error) error {
	if d.made == most {
		return fmt.Errorf("directory %s was made %d times and was gone each time: %w", path, most, err)
	}
	if err := make(); err != nil {
		return err
	}
	d.made++
	return nil
}

// Create calls create, and as long as that fails with zk.ErrNoNode it makes the
// directory at path and calls create again. From the fourth time on it pauses
// in between, until ctx ends or over is closed at the latest.
func Create(ctx context.Context, over <-chan struct{}, path string, make, create func() error) error {
	var d Directory
	for again := (turns.Turns{}); ; again.Pause(ctx, over) {
		err := create()
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := d.Make(path, err, make); err != nil {
			return err
		}
	}
}

// Chroot reports whether err says that the client's chroot does not exist, and
// that the client may not create it. framework.Absent is false then.
func Chroot(err error) bool { return errors.As(err, new(interface{ MissingChroot() string })) }
