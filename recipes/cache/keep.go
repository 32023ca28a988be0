package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// ErrSnapshot is wrapped by Status.Err while the view is from the file of
// WithSnapshot, and nothing was read from the ensemble yet.
var ErrSnapshot = errors.New("the view is from a snapshot")

var (
	errAnotherRoot = errors.New("the snapshot is of another root, or of another ensemble")
	errLate        = errors.New("the ensemble has answered before the disk")
)

const (
	leastPause = 5 * time.Second // between two writes of a file
	mostTime   = 50              // the part of the time that is spent on writes: one in so many
	afterError = time.Minute     // the least pause after a write that has failed
	// mostAge is the age at which a view that has not changed is written again, so
	// that the time in the file is right.
	mostAge = time.Hour

	readPatience  = time.Second     // how long Start waits for the disk
	writePatience = 5 * time.Second // how long Close waits for it
)

// keeper keeps the latest view in a file. A disk can hang, so only the
// goroutine of run uses it, without a mutex. Others wait for that goroutine for
// a bounded time.
type keeper struct {
	c    *Cache
	file string
	age  time.Duration // a file that is older is ignored; 0: none is

	read chan struct{} // closed: the file was read
	done chan struct{} // closed: nothing is written any more

	// Cache.mu guards what follows.
	ids     []version.Created // see identity
	emptied *Status           // of the batch that empties the view; nil: there is none
}

func (k *keeper) run() {
	defer close(k.done)
	err := k.load()
	close(k.read)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.c.client.Logger().Warn("a snapshot is ignored", zap.String("path", k.heading().path), zap.String("label", k.c.cfg.label), zap.String("file", k.file), zap.Error(err))
		if errors.Is(err, errNoSnapshot) {
			return // it is not ours to replace
		}
	}
	k.tidy()
	var last snapshot  // that was written
	var next time.Time // when the next one may be written
	for {
		now, final, changed := k.present()
		isDue := now != nil && (now.tree != last.tree || now.hidden != last.hidden ||
			now.at.Sub(last.at) >= k.refresh() || final && now.at.After(last.at))
		if isDue && (final || !time.Now().Before(next)) {
			began := time.Now()
			err := k.write(now)
			last, next = *now, time.Now().Add(pauseAfter(time.Since(began), err))
			if err != nil {
				k.notWritten(err)
				last = snapshot{}
			}
			if !final {
				continue
			}
		}
		if final {
			return
		}
		wait := k.refresh()
		if isDue {
			wait = time.Until(next)
		} else if left := time.Until(last.at.Add(wait)); left > 0 { // otherwise the view is not known to be true
			wait = left
		}
		select {
		case <-changed:
		case <-time.After(wait):
		}
	}
}

// pauseAfter returns the pause after a write that took so long.
func pauseAfter(took time.Duration, err error) time.Duration {
	least := leastPause
	if err != nil {
		least = afterError
	}
	return max(least, mostTime*took)
}

// refresh returns how old the time in the file may be while the view is true.
func (k *keeper) refresh() time.Duration {
	if k.age == 0 {
		return mostAge
	}
	return max(min(mostAge, k.age/4), leastPause)
}

func (k *keeper) notWritten(err error) {
	k.c.client.Logger().Warn("a snapshot was not written", zap.String("path", k.heading().path), zap.String("label", k.c.cfg.label), zap.String("file", k.file), zap.Error(err))
}

// awaitRead waits until the file was read, for as long as a disk may take.
func (k *keeper) awaitRead() {
	if k == nil {
		return
	}
	select {
	case <-k.read:
	case <-k.c.life.Done():
	case <-time.After(readPatience):
	}
}

// awaitDone waits until the last view was written, for as long as a disk may
// take.
func (k *keeper) awaitDone() {
	if k == nil {
		return
	}
	select {
	case <-k.done:
	case <-time.After(writePatience):
		k.notWritten(fmt.Errorf("the disk has not answered within %v", writePatience))
	}
}

// load shows what the file has.
func (k *keeper) load() error {
	most := k.c.cfg.maxBytes
	info, err := os.Stat(k.file)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%v: %w", info.Mode().Type(), errNoSnapshot)
	case info.Size()-headingBytes > most:
		return fmt.Errorf("%d bytes: %w", info.Size(), errTooMuch)
	}
	f, err := os.Open(k.file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := checkEnds(f, info.Size()); err != nil {
		return err
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return err
	}
	s, err := readSnapshot(data, k.c.root, most)
	if err != nil {
		return err
	}
	want, age := k.heading(), time.Since(s.at)
	switch {
	case s.path != want.path:
		return fmt.Errorf("it is of the path %s", s.path)
	case s.depth != want.depth || s.noData != want.noData:
		return errors.New("it is of a cache with another WithDepth or WithoutData")
	case k.age > 0 && age.Abs() > k.age:
		return fmt.Errorf("it is of %v: see WithMaxSnapshotAge", s.at.Format(time.RFC3339))
	case age < 0:
		s.at = time.Now() // the clock was set back
	}
	if err := k.filter(s); err != nil {
		return err
	}
	return k.show(s)
}

func (k *keeper) heading() heading {
	return heading{path: k.c.client.Resolve(k.c.root), depth: k.c.cfg.depth, noData: k.c.cfg.noData}
}

// filter drops what the cache does not show: its filter may be another one than
// that of the program before.
func (k *keeper) filter(s *snapshot) error {
	for _, t := range []**tree{&s.tree, &s.hidden} {
		var reads []request.Read
		(*t).each(func(n *Node) bool { reads = append(reads, request.Read{Path: n.Path}); return true })
		pass, err := k.c.passing(reads, nil)
		if err != nil {
			return err
		}
		if len(pass) == len(reads) {
			continue
		}
		nodes := make([]*Node, len(pass))
		for i, read := range pass {
			nodes[i] = (*t).get(read.Path)
		}
		*t = (*tree)(nil).put(nodes...)
	}
	return nil
}

// show makes the snapshot the view, unless the ensemble has answered already.
func (k *keeper) show(s *snapshot) error {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.begun > 0:
		return errLate
	case c.status.State != Syncing:
		return nil
	}
	c.view, k.ids = View{tree: s.tree, hidden: s.hidden, known: true}, s.ids
	c.enterSinceLocked(Stale, ErrSnapshot, s.at)
	return nil
}

// identity is the znodes from "/" to the root, as the client sees them. One
// that is missing is zero, and so is the first one of an ensemble. If any of
// the others is not as in the snapshot, that is of a root that was deleted, or
// of another ensemble.
func (k *keeper) identity(w *watch) ([]version.Created, error) {
	var reads []request.Read
	for at := k.c.root; at != ""; at = parent(at) {
		reads = append(reads, request.Read{Path: at})
	}
	slices.Reverse(reads)
	found, err := w.session.StatAll(k.c.life, reads...)
	ids := make([]version.Created, len(found))
	for i, r := range found {
		if r.Err == nil {
			ids[i] = version.CreatedOf(r.Stat)
		}
	}
	return ids, err
}

// isAnother reports whether the view is from a snapshot of a root with another
// identity.
func (k *keeper) isAnother(ids []version.Created) bool {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.known && c.view.zxid == 0 && another(k.ids, ids)
}

// replaceLocked takes what a walk has found about the root, before its view is
// shown.
func (k *keeper) replaceLocked(r *round) {
	if r.ids != nil {
		k.ids = r.ids
	}
	if r.another {
		k.emptied = &Status{State: Syncing, Since: time.Now(), Err: errAnotherRoot}
	}
}

// another reports whether two identities differ. The shorter one is of the last
// znodes.
func another(a, b []version.Created) bool {
	none := version.Created{}
	for len(a) > 0 && len(b) > 0 {
		x, y := a[len(a)-1], b[len(b)-1]
		if x != y && x != none && y != none {
			return true
		}
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return false
}

// present returns what is to be kept, nil if nothing was read yet, and whether
// it is the last. changed is closed when there may be something else.
func (k *keeper) present() (now *snapshot, final bool, changed <-chan struct{}) {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	final = c.status.State == Closed || c.status.State == Failed
	if c.view.zxid == 0 {
		return nil, final, c.audience.Changed()
	}
	now = &snapshot{heading: k.heading(), tree: c.view.tree, hidden: c.view.hidden}
	if now.at = c.until; c.status.State == Synced {
		now.at = time.Now()
	}
	var root version.Created
	if n := now.tree.get(c.root); n != nil {
		root = n.Stat.version().Created
	}
	if now.ids = k.ids; len(now.ids) == 0 || now.ids[len(now.ids)-1] != root {
		now.ids = []version.Created{root} // it was created since: so may be those above it
	}
	return now, final, c.audience.Changed()
}

// write replaces the file. Whenever the process is killed or the machine fails,
// the file is the old one or the new one.
func (k *keeper) write(s *snapshot) (err error) {
	f, err := os.CreateTemp(filepath.Dir(k.file), filepath.Base(k.file)+beside+"*") // with the mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err = s.write(f, k.c.root); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), k.file); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(k.file)); err != nil {
		return fmt.Errorf("the new file is there, and may be lost if the machine fails: %w", err)
	}
	return nil
}

// syncDir lets a rename in a directory outlast the machine, where that can be
// asked for: not on Windows, on some file systems, and in directories that one
// may not read.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		defer func() { _ = d.Close() }()
		err = d.Sync()
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// beside is what the name of a file that is being written has behind that of
// the snapshot, before digits.
const beside = "~"

// tidy removes what processes that were killed have left. What is younger than
// a minute may be of one that is just writing.
func (k *keeper) tidy() {
	files, _ := os.ReadDir(filepath.Dir(k.file))
	for _, f := range files {
		digits, ok := strings.CutPrefix(f.Name(), filepath.Base(k.file)+beside)
		if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()).Abs() > time.Minute {
			_ = os.Remove(filepath.Join(filepath.Dir(k.file), f.Name()))
		}
	}
}
