package cache

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// snapshot is a view as a file has it:
//
//	magic, with the version of the format
//	heading: see heading
//	znodes, in the order of a walk, each behind a 1; then a 0
//	paths that may not be read, in the same order, each behind a 1; then a 0
//	how many bytes that are, in 8 bytes, and their CRC-32C, in 4
//
// Other integers are varints. Texts have their length in front of them. Paths
// are without that of the root, so that a namespace of the client does not
// matter.
type snapshot struct {
	heading
	tree, hidden *tree
}

// heading says what a snapshot is of.
type heading struct {
	path   string            // the root's, at the ensemble
	depth  int               // see config
	noData bool              // see config
	at     time.Time         // until then the view was true; in milliseconds
	ids    []version.Created // see identity
}

// The number in magic is the version of the format.
const (
	ours  = "zkrecipes cache "
	magic = ours + "1\n"

	trailerBytes = 8 + crc32.Size
)

// headingBytes is more than what a file has before its znodes, without the root
// and what is above it.
const headingBytes = 1 << 10

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errNoSnapshot = errors.New("the file has something else in it")
	errTorn       = errors.New("the snapshot is damaged")
)

// write writes the snapshot of a cache with this root.
func (s *snapshot) write(w io.Writer, root string) error {
	sum := crc32.New(castagnoli)
	out := snapshotWriter{Writer: bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)}
	out.raw(magic)
	out.text(s.path)
	out.ints(int64(s.depth), asInt(s.noData), s.at.UnixMilli(), int64(len(s.ids)))
	for _, id := range s.ids {
		out.ints(id.Czxid, id.Ctime)
	}
	prefix := strings.TrimSuffix(root, "/")
	s.tree.each(func(n *Node) bool {
		out.ints(1)
		out.text(n.Path[len(prefix):])
		out.text(string(n.Data))
		st := n.Stat
		out.ints(st.Czxid, st.Mzxid, st.Ctime, st.Mtime, st.EphemeralOwner, int64(st.Version), int64(st.DataLength))
		return true
	})
	out.ints(0)
	s.hidden.each(func(n *Node) bool {
		out.ints(1)
		out.text(n.Path[len(prefix):])
		return true
	})
	out.ints(0)
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, out.size), sum.Sum32()))
	return err
}

type snapshotWriter struct {
	*bufio.Writer // its Flush has the error of all writes
	size          uint64
}

func (w *snapshotWriter) raw(s string) {
	n, _ := w.WriteString(s)
	w.size += uint64(n)
}

func (w *snapshotWriter) ints(all ...int64) {
	for _, i := range all {
		n, _ := w.Write(binary.AppendVarint(w.AvailableBuffer(), i))
		w.size += uint64(n)
	}
}

func (w *snapshotWriter) text(s string) {
	w.ints(int64(len(s)))
	w.raw(s)
}

func asInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// readSnapshot returns the snapshot that data are, with the paths of a cache
// with this root. Its znodes share no memory with data, and take maxBytes at
// most. It is as good as any view: nothing is below a znode that is missing.
func readSnapshot(data []byte, root string, maxBytes int64) (*snapshot, error) {
	if err := checkEnds(bytes.NewReader(data), int64(len(data))); err != nil {
		return nil, err
	}
	end := len(data) - trailerBytes
	if binary.BigEndian.Uint32(data[len(data)-crc32.Size:]) != crc32.Checksum(data[:end], castagnoli) {
		return nil, errTorn
	}
	in := snapshotReader{left: data[len(magic):end], prefix: strings.TrimSuffix(root, "/")}
	var s snapshot
	s.path = in.text()
	s.depth, s.noData, s.at = int(in.int()), in.int() != 0, time.UnixMilli(in.int())
	for n := in.int(); n > 0 && in.err == nil; n-- {
		s.ids = append(s.ids, version.Created{Czxid: in.int(), Ctime: in.int()})
	}
	in.room = maxBytes
	s.tree = in.znodes(root, s.depth)
	s.hidden = in.unreadable(s.tree)
	switch {
	case in.err != nil:
		return nil, in.err
	case len(in.left) > 0:
		return nil, errTorn
	}
	return &s, nil
}

// checkEnds returns an error if a file of this size is no snapshot, or has
// another size than when it was written. So nobody reads a large file in vain.
func checkEnds(file io.ReaderAt, size int64) error {
	head, trailer := make([]byte, min(int64(len(magic)), size)), make([]byte, trailerBytes)
	if _, err := file.ReadAt(head, 0); err != nil && len(head) > 0 {
		return err
	}
	if !strings.HasPrefix(ours, string(head[:min(len(head), len(ours))])) {
		return errNoSnapshot
	}
	end := size - trailerBytes
	if string(head) != magic || end < int64(len(magic)) {
		return errTorn
	}
	if _, err := file.ReadAt(trailer, end); err != nil {
		return err
	}
	if binary.BigEndian.Uint64(trailer) != uint64(end) {
		return errTorn
	}
	return nil
}

// snapshotReader takes values from what is left. After an error it returns zero
// values.
type snapshotReader struct {
	left   []byte
	prefix string // of paths
	room   int64  // for znodes, in bytes
	err    error
}

func (r *snapshotReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.left = nil
}

func (r *snapshotReader) int() int64 {
	n, size := binary.Varint(r.left)
	if size <= 0 {
		r.fail(errTorn)
		return 0
	}
	r.left = r.left[size:]
	return n
}

func (r *snapshotReader) bytes() []byte {
	n := r.int()
	if n < 0 || n > int64(len(r.left)) {
		r.fail(errTorn)
		return nil
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *snapshotReader) text() string { return string(r.bytes()) }

// each calls take with a path for each item of a list. The paths rise.
func (r *snapshotReader) each(take func(path string)) {
	last := ""
	for r.int() == 1 {
		path := r.prefix + r.text()
		if framework.ValidatePath(path) != nil || last != "" && compare(last, path) >= 0 {
			r.fail(errTorn)
			return
		}
		take(path)
		last = path
	}
}

func (r *snapshotReader) znodes(root string, depth int) *tree {
	var all []*Node
	var above []string // the path that was read last, and those above it
	r.each(func(path string) {
		for len(above) > 0 && !isBelow(above[len(above)-1], path) {
			above = above[:len(above)-1]
		}
		if len(above) > depth || len(above) == 0 && path != root || len(above) > 0 && above[len(above)-1] != parent(path) {
			r.fail(errTorn)
			return
		}
		above = append(above, path)
		var data []byte
		if read := r.bytes(); len(read) > 0 {
			data = append(make([]byte, 0, len(read)), read...)
		}
		st := Stat{Czxid: r.int(), Mzxid: r.int(), Ctime: r.int(), Mtime: r.int(), EphemeralOwner: r.int()}
		st.Version, st.DataLength = int32(r.int()), int32(r.int())
		all = append(all, r.fits(newNode(path, data, st)))
	})
	return (*tree)(nil).put(all...)
}

func (r *snapshotReader) unreadable(shown *tree) *tree {
	var all []*Node
	r.each(func(path string) {
		if shown.get(path) != nil || shown.get(parent(path)) == nil {
			r.fail(errTorn)
			return
		}
		all = append(all, r.fits(newNode(path, nil, Stat{})))
	})
	return (*tree)(nil).put(all...)
}

// fits takes the room of a znode.
func (r *snapshotReader) fits(n *Node) *Node {
	if r.room -= n.bytes(); r.room < 0 {
		r.fail(fmt.Errorf("its znode %s: %w", n.Path, errTooMuch))
	}
	return n
}
