package testutil

import (
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func pipes(t *testing.T) (near, far *pipeEnd) {
	near, far = newPipe(memAddr("near"), memAddr("far"))
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

var _ net.Conn = (*pipeEnd)(nil)

func TestPipeDelivers(t *testing.T) {
	near, far := pipes(t)
	near.Write([]byte("hello"))
	near.Close() // what was written can still be read, then the stream ends
	b, err := io.ReadAll(far)
	if string(b) != "hello" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write to a closed end: %v", err)
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a read of a closed end: %v", err)
	}
}

func TestPipeHalfClose(t *testing.T) {
	near, far := pipes(t)
	near.CloseWrite()
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	far.Write([]byte("still"))
	b := make([]byte, 10)
	if n, err := near.Read(b); string(b[:n]) != "still" || err != nil {
		t.Errorf("%q %v", b[:n], err)
	}
}

func TestPipeDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipes(t)
		began := time.Now()
		near.SetReadDeadline(began.Add(3 * time.Second))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("once more: %v", err)
		}
		near.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, func() { far.Write([]byte("x")) })
		if n, err := near.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("without a deadline: %d %v", n, err)
		}
		// A deadline set during a read ends that read. A deadline that
		// is moved does not end it early.
		near.SetReadDeadline(time.Now().Add(time.Second))
		began = time.Now()
		time.AfterFunc(time.Second/2, func() { near.SetReadDeadline(began.Add(5 * time.Second)) })
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("moved: %v after %v", err, time.Since(began))
		}
		// The window is full: a write waits, up to its deadline.
		near.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := near.Write(make([]byte, 2*window)); n != window || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d %v", n, err)
		}
		near.SetWriteDeadline(time.Time{})
		go io.Copy(io.Discard, far)
		if n, err := near.Write(make([]byte, 2*window)); n != 2*window || err != nil {
			t.Errorf("%d %v", n, err)
		}
		near.Close()
	})
}

func TestPipeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipes(t)
		near.hold(true)
		near.Write([]byte("late"))
		near.Close()
		far.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := far.Read(make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("held: %v", err)
		}
		near.hold(false)
		far.SetReadDeadline(time.Now().Add(time.Second))
		if b, err := io.ReadAll(far); string(b) != "late" || err != nil {
			t.Errorf("%q %v", b, err)
		}
	})
}

func TestPipeBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipes(t)
		time.AfterFunc(time.Second, near.breakOff)
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("far: %v", err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("near: %v", err)
		}
	})
}

// A session's password is derived from its id like on the real server: anyone
// who knows the id can take the session over.
func TestPassword(t *testing.T) {
	for id, want := range map[int64]string{
		0x100002659c50000: "91ca6a764ab7b7a557521e6aa381b95c",
		0x30000265d100004: "0e1d62c7a7b6ee1c45da3bb197f14a71",
	} {
		if got := hex.EncodeToString(password(id)); got != want {
			t.Errorf("%#x: %s, want %s", id, got, want)
		}
	}
}
