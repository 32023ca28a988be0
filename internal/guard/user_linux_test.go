package guard

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// heap returns how much memory is in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// fill has a process say as much as it may of n sessions, and returns why it is
// refused.
func (s *served) fill(t *testing.T, process *os.File, n int) error {
	t.Helper()
	for i := range n {
		m := guardOf(int64(i + 1))
		m.Servers = strings.Repeat("m:2181,", longestServers/len("m:2181,"))
		m.Server = strings.Repeat("m", longestText)
		if _, err := process.Write(m.packet()); err != nil {
			t.Fatal(err)
		}
		s.drain()
		if s.wrong != nil {
			return s.wrong
		}
	}
	return nil
}

// TestMemoryOfAUser: however many processes a user has, and whatever they say,
// a guardian remembers so much of it. The processes of others, and its own that
// were there, are guarded as ever.
func TestMemoryOfAUser(t *testing.T) {
	g, stop := newGuardian(Config{Ensembles: []Ensemble{{Servers: "m:2181"}}}, false)
	defer stop()
	before, refused := heap(), 0
	var all []*served
	for range 20 {
		s, process := newServed(t, g, 1)
		s.charge.hello = true
		if err := s.fill(t, process, 500); errors.Is(err, errTooMuch) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if used := heap() - before; used > 2*mostBytes || refused == 0 || refused == len(all) {
		t.Errorf("%d bytes are used, %d processes refused", used, refused)
	}
	other, process := newServed(t, g, 2)
	other.charge.hello = true
	if err := other.fill(t, process, 500); err != nil {
		t.Errorf("another user: %v", err)
	}
	if len(all[0].charge.sessions) != 500 || all[0].wrong != nil {
		t.Errorf("an earlier process: %d sessions, %v", len(all[0].charge.sessions), all[0].wrong)
	}
	g.leave(all[0])
	again, process := newServed(t, g, 1)
	again.charge.hello = true
	if err := again.fill(t, process, 400); err != nil {
		t.Errorf("once a process has ended: %v", err)
	}
	if err := g.enter(all[0]); err != nil { // the cleanup leaves
		t.Error(err)
	}
	runtime.KeepAlive(all)
}

// TestFilesOfAUser: the processes of a user and their commands do not use up
// the descriptors of a guardian.
func TestFilesOfAUser(t *testing.T) {
	g, stop := newGuardian(Config{Ensembles: []Ensemble{{Servers: "m:2181"}}}, false)
	defer stop()
	g.mostFiles = 20
	runs, process := newServed(t, g, 1)
	runs.charge.hello = true
	for ref := range uint64(20) {
		_, _ = process.Write(message{Op: opStarting, Ref: ref + 1}.packet())
	}
	runs.drain()
	if n := runs.user.has.files; !errors.Is(runs.wrong, errTooMuch) || n != g.mostFiles {
		t.Errorf("%v, %d descriptors are counted", runs.wrong, n)
	}
	if err := g.enter(&served{peer: peer{uid: 1}}); err == nil {
		t.Error("another process has a place")
	}
}

// picky is an ensemble that does not answer for session 10.
type picky struct{ record }

func (p picky) Connect(ctx context.Context, to servers.Server, limit time.Duration, ask func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error) {
	if asked, err := ask(); err == nil && asked.SessionID == 10 {
		return silent(p).Connect(ctx, to, limit, ask)
	}
	return p.record.Connect(ctx, to, limit, ask)
}

// TestAUserWhoseSessionsAreNotClosed does not keep those of others open.
func TestAUserWhoseSessionsAreNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record{filepath.Join(t.TempDir(), "record")}
		g, stop := newGuardian(Config{Ensembles: []Ensemble{{"m:2181", picky{r}}}}, false)
		defer stop()
		for range 2 * mostClosing {
			go die(t, g, 1, guardOf(10))
		}
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := die(t, g, 2, guardOf(20)); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute) // until the last connects have ended
	})
}
