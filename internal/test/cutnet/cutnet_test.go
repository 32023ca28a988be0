package cutnet_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/test/cutnet"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
)

// echoing is the environment variable that makes this test binary a server that
// answers with what it is told.
const echoing = "ZKR_TEST_ECHO"

func TestMain(m *testing.M) {
	cutnet.Main()
	if address := os.Getenv(echoing); address != "" {
		echo(address)
	}
	if args := os.Args[1:]; os.Getenv(load.Role) != "" {
		load.Main(cutLoad(args[0], args[1], args[2], args[3], args[4]))
	}
	os.Exit(m.Run())
}

func echo(address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// stage is this process at node 0, and a server at node 1.
type stage struct {
	cutnet.Network
	address string // of the server, as node 0 reaches it
}

// play runs a test on both kinds of network, or on those that there are.
func play(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Run("relays", func(t *testing.T) {
		if cutnet.Isolated() {
			t.Skip("has run outside")
		}
		test(t, newStage(t, cutnet.NewRelays()))
	})
	t.Run("namespaces", func(t *testing.T) {
		if !cutnet.Isolated() {
			namespaces, why, err := cutnet.Choose()
			if err != nil {
				t.Fatal(err)
			}
			if !namespaces {
				t.Skip(why)
			}
			cutnet.Rerun(t)
			return
		}
		n, err := cutnet.NewNamespaces(0)
		if err != nil {
			t.Fatal(err)
		}
		test(t, newStage(t, n))
	})
}

func newStage(t *testing.T, n cutnet.Network) *stage {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), echoing+"="+n.Host(1)+":0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Enter(1, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t)
	})
	listening, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, err := n.Address(0, 1, strings.TrimSpace(listening))
	if err != nil {
		t.Fatal(err)
	}
	return &stage{n, address}
}

const (
	patience = time.Minute
	moment   = 300 * time.Millisecond
)

func (s *stage) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// hears says something, and waits until it is answered.
func hears(t *testing.T, conn net.Conn, size int) {
	t.Helper()
	say(t, conn, size)
	listen(t, conn, size)
}

func say(t *testing.T, conn net.Conn, size int) {
	t.Helper()
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
}

func listen(t *testing.T, conn net.Conn, size int) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
}

// silent fails the test if anything is heard for a moment.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(moment)); err != nil {
		t.Fatal(err)
	}
	if k, err := conn.Read(make([]byte, 1)); k > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %d bytes, %v", k, err)
	}
}

// Each direction is cut alone. What was said meanwhile arrives afterwards.
func TestACut(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		conn := s.dial(t)
		hears(t, conn, 1)
		for _, way := range [][2]int{{0, 1}, {1, 0}} {
			before := s.Lost()
			s.Set(way[0], way[1], cutnet.Link{Cut: true})
			say(t, conn, 1)
			silent(t, conn)
			if s.Lost() == before {
				t.Errorf("%v: nothing was lost", way)
			}
			// Nobody can connect meanwhile, and nothing comes of the attempt.
			if late, err := net.DialTimeout("tcp", s.address, moment); err == nil {
				say(t, late, 1)
				silent(t, late)
				late.Close()
			}
			s.Set(way[0], way[1], cutnet.Link{})
			listen(t, conn, 1)
			hears(t, s.dial(t), 1)
		}
		hears(t, conn, 10_000)
	})
}

// What is refused breaks its connection at the sender, and the other side of it
// hears nothing.
func TestARefusal(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		conn := s.dial(t)
		hears(t, conn, 1)
		s.Set(0, 1, cutnet.Link{Refused: true})
		say(t, conn, 1)
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("heard %v", err)
		}
		late, err := net.DialTimeout("tcp", s.address, patience)
		if err == nil { // a relay has accepted
			_ = late.SetReadDeadline(time.Now().Add(patience))
			_, err = late.Read(make([]byte, 1))
			late.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connected: %v", err)
		}
		s.Set(0, 1, cutnet.Link{})
		hears(t, s.dial(t), 1)
	})
}

// A slow link delays all, and in order.
func TestASlowLink(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		conn := s.dial(t)
		hears(t, conn, 1)
		s.Set(0, 1, cutnet.Link{Delay: moment, Jitter: moment / 10})
		began := time.Now()
		hears(t, conn, 10_000)
		if took := time.Since(began); took < moment {
			t.Errorf("answered after %v", took)
		}
		const rate, size = 50_000, 40_000
		s.Set(0, 1, cutnet.Link{Rate: rate})
		began = time.Now()
		hears(t, conn, size)
		if took := time.Since(began); took < time.Second*size/rate/2 {
			t.Errorf("%d bytes were answered after %v", size, took)
		}
		s.Set(0, 1, cutnet.Link{})
		hears(t, conn, 1)
	})
}

// A lossy link loses packets, and no bytes of a connection.
func TestALossyLink(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		conn := s.dial(t)
		s.Set(0, 1, cutnet.Link{Loss: 0.3})
		s.Set(1, 0, cutnet.Link{Loss: 0.3})
		for i := 0; i < 5 || s.Lost() == 0; i++ {
			hears(t, conn, 100)
		}
	})
}

// The end of a connection is told like everything else: not while the way is
// cut.
func TestTheEndOfAConnection(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		conn := s.dial(t)
		hears(t, conn, 1)
		s.Set(1, 0, cutnet.Link{Cut: true})
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		silent(t, conn)
		s.Set(1, 0, cutnet.Link{})
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the end: %v", err)
		}
	})
}
