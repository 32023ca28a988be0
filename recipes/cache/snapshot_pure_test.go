package cache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// A root is another one if a znode of its path is, by the transaction that has
// made it or by the time of that. What is not known differs from nothing.
func TestAnotherRoot(t *testing.T) {
	of := func(ids ...version.Created) []version.Created { return ids }
	top, root := version.Created{Czxid: 1, Ctime: 100}, version.Created{Czxid: 2, Ctime: 200}
	for name, tt := range map[string]struct {
		then, now []version.Created
		want      bool
	}{
		"the same":                       {of(top, root), of(top, root), false},
		"only its time differs":          {of(top, root), of(top, version.Created{Czxid: 2, Ctime: 201}), true},
		"only its transaction differs":   {of(top, root), of(top, version.Created{Czxid: 3, Ctime: 200}), true},
		"only a time above differs":      {of(top, root), of(version.Created{Czxid: 1, Ctime: 101}, root), true},
		"one above is not known":         {of(top, root), of(version.Created{}, root), false},
		"it was not there":               {of(top, version.Created{}), of(top, root), false},
		"only the last are known":        {of(top, root), of(root), false},
		"only the last known one is not": {of(top, root), of(top), true},
		"nothing is known":               {nil, of(top, root), false},
	} {
		for _, way := range [][2][]version.Created{{tt.then, tt.now}, {tt.now, tt.then}} {
			if got := another(way[0], way[1]); got != tt.want {
				t.Errorf("%s: another %t", name, got)
			}
		}
	}
}

// drawSnapshot draws a snapshot of a cache with this root.
func drawSnapshot(t *rapid.T, root string) *snapshot {
	number := rapid.Int64()
	s := &snapshot{heading: heading{
		path: "/ns" + root, depth: rapid.SampledFrom([]int{2, math.MaxInt}).Draw(t, "depth"),
		noData: rapid.Bool().Draw(t, "without data"), at: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "time")),
	}}
	for range rapid.IntRange(0, 3).Draw(t, "above") {
		s.ids = append(s.ids, version.Created{Czxid: number.Draw(t, "czxid"), Ctime: number.Draw(t, "ctime")})
	}
	paths, drawn := []string{root}, map[string]bool{root: true}
	for range rapid.IntRange(0, 20).Draw(t, "znodes") {
		above := rapid.SampledFrom(paths).Draw(t, "above")
		path := layout.Join(above, rapid.SampledFrom([]string{"a", "b", "a-", "a.", "!"}).Draw(t, "name"))
		if depth(root, path) > s.depth || drawn[path] {
			continue
		}
		switch drawn[path] = true; {
		case rapid.IntRange(0, 4).Draw(t, "unreadable") == 0:
			s.hidden = s.hidden.put(newNode(path, nil, Stat{}))
		default:
			paths = append(paths, path)
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "nothing is there") == 0 {
		paths, s.hidden = nil, nil
	}
	for _, path := range paths {
		data := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "data")
		s.tree = s.tree.put(newNode(path, data, Stat{
			Czxid: number.Draw(t, "czxid"), Mzxid: number.Draw(t, "mzxid"), Ctime: number.Draw(t, "ctime"), Mtime: number.Draw(t, "mtime"),
			EphemeralOwner: number.Draw(t, "owner"), Version: rapid.Int32().Draw(t, "version"), DataLength: int32(len(data)),
		}))
	}
	return s
}

func bytesOf(t interface{ Fatal(...any) }, s *snapshot, root string) []byte {
	var out bytes.Buffer
	if err := s.write(&out, root); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// described shows all that a snapshot has.
func described(s *snapshot, root string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", s.heading)
	for _, tree := range []*tree{s.tree, s.hidden} {
		tree.each(func(n *Node) bool {
			fmt.Fprintf(&b, "%s %q %+v\n", strings.TrimPrefix(n.Path, strings.TrimSuffix(root, "/")), n.Data, n.Stat)
			return true
		})
	}
	return b.String()
}

// What is written is read, also in another namespace. Whatever is cut off, or
// changed, is noticed.
func TestSnapshotIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roots := []string{"/", "/config", "/a/b"}
		root, elsewhere := rapid.SampledFrom(roots).Draw(t, "root"), rapid.SampledFrom(roots).Draw(t, "root in another namespace")
		s := drawSnapshot(t, root)
		data := bytesOf(t, s, root)
		got, err := readSnapshot(data, root, math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := described(got, root), described(s, root); got != want {
			t.Errorf("it is read as\n%s\nwant\n%s", got, want)
		}
		got.tree.each(func(n *Node) bool {
			if want := s.tree.get(n.Path); want == nil || n.priority != want.priority {
				t.Errorf("%s has another priority", n.Path)
			}
			return true
		})
		if got, err := readSnapshot(data, elsewhere, math.MaxInt64); root != "/" && elsewhere != "/" && (err != nil || described(got, elsewhere) != described(s, root)) {
			t.Errorf("with the root %s it is read as %+v, %v", elsewhere, got, err)
		}
		if n := s.tree.memory() + s.hidden.memory(); n > 0 {
			if _, err := readSnapshot(data, root, n); err != nil {
				t.Errorf("with as much memory as the view takes: %v", err)
			}
			if _, err := readSnapshot(data, root, n/2); !errors.Is(err, errTooMuch) {
				t.Errorf("with half of the memory that the view takes: %v", err)
			}
			if int64(len(data)) > n+headingBytes {
				t.Errorf("the file has %d bytes, and the view %d", len(data), n)
			}
		}
		if _, err := readSnapshot(data[:rapid.IntRange(0, len(data)-1).Draw(t, "cut")], root, math.MaxInt64); err == nil {
			t.Error("a part of it is read without an error")
		}
		data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if _, err := readSnapshot(data, root, math.MaxInt64); err == nil {
			t.Error("another byte is read without an error")
		}
	})
}

// A file that is no snapshot of ours is told from one that is damaged.
func TestNoSnapshot(t *testing.T) {
	for data, want := range map[string]error{
		"":                                  errTorn,
		magic[:5]:                           errTorn,
		magic:                               errTorn,
		magic + "\x00\x00\x00\x00":          errTorn,
		"root:x:0:0:root:/root:/bin/bash\n": errNoSnapshot,
		"zkrecipes cache 2\n" + "whatever":  errTorn,
	} {
		if _, err := readSnapshot([]byte(data), "/", math.MaxInt64); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", data, err, want)
		}
	}
}

// FuzzSnapshot reads what a file may have: it ends with an error, or with what
// any view has. The checksum is right, or else no other check would be reached.
func FuzzSnapshot(f *testing.F) {
	rapid.Check(f, func(t *rapid.T) {
		if data := bytesOf(t, drawSnapshot(t, "/a"), "/a"); rapid.IntRange(0, 9).Draw(t, "seed") == 0 {
			f.Add(data[len(magic):len(data)-trailerBytes], "/a")
		}
	})
	f.Fuzz(func(t *testing.T, body []byte, root string) {
		if framework.ValidatePath(root) != nil {
			return
		}
		data := append([]byte(magic), body...)
		size, sum := uint64(len(data)), crc32.Checksum(data, castagnoli)
		data = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(data, size), sum)
		const most = 1 << 20
		s, err := readSnapshot(data, root, most)
		if err != nil {
			return
		}
		if n := s.tree.memory() + s.hidden.memory(); n > most {
			t.Errorf("its znodes take %d bytes", n)
		}
		for _, tree := range []*tree{s.tree, s.hidden} {
			tree.each(func(n *Node) bool {
				if n.Path != root && s.tree.get(parent(n.Path)) == nil || depth(root, n.Path)-1 > s.depth || framework.ValidatePath(n.Path) != nil {
					t.Errorf("it shows %q", n.Path)
				}
				return true
			})
		}
		again, err := readSnapshot(bytesOf(t, s, root), root, most)
		if err != nil || described(again, root) != described(s, root) || !reflect.DeepEqual(shape(again.tree), shape(s.tree)) {
			t.Errorf("it is read as\n%s\nand after it was written as\n%v, %v", described(s, root), again, err)
		}
	})
}
