package testutil

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hangs are tests in virtual time that hang, and what must be said of each. One
// does not.
var hangs = map[string]struct {
	test func(t *testing.T)
	says []string
}{
	"never": {func(t *testing.T) {
		Start(t, InMemory(), WithTimeLimit(time.Hour))
		<-make(chan int) // the ensemble's clocks go on
	}, []string{"TestHang has not ended in 1h0m0s of virtual time (WithTimeLimit)", "[chan receive (durable)", "hang_test.go:", "testutil.(*Embedded).tick("}},
	"socket": {func(t *testing.T) {
		Start(t, InMemory())
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = l.Accept()
	}, []string{"the virtual time of TestHang stands still", "[IO wait", "(*TCPListener).Accept", "hang_test.go:", "testutil.(*Embedded).tick("}},
	"mutex": {func(t *testing.T) {
		Start(t, InMemory())
		time.Sleep(time.Minute)
		var mu sync.Mutex
		mu.Lock()
		go func() {
			defer mu.Unlock()
			time.Sleep(time.Hour)
		}()
		mu.Lock()
	}, []string{"stands still, about 1m0s after the start", "[sync.Mutex.Lock", "[sleep (durable)", "hang_test.go:"}},
	"not": {func(t *testing.T) { // it computes for longer than time may stand still
		Start(t, InMemory())
		for !computed.Load() {
			runtime.Gosched()
		}
	}, nil},
}

// computed tells by the clock of the machine that enough was computed.
var computed atomic.Bool

// TestHang hangs, in the process of TestAHangSaysWhatItWaitsFor.
func TestHang(t *testing.T) {
	hang, ok := hangs[os.Getenv("TESTUTIL_HANG")]
	if !ok {
		t.Skip("TESTUTIL_HANG is not set")
	}
	mostLooks = 20
	collect := make(chan struct{})
	go func() { // the runtime would collect in two minutes
		for {
			select {
			case <-collect:
				return
			default:
				time.Sleep(lookPause)
				runtime.GC()
			}
		}
	}()
	defer close(collect)
	time.AfterFunc(3*time.Duration(mostLooks)*lookPause, func() { computed.Store(true) })
	synctest.Test(t, hang.test)
}

// A test in virtual time that hangs said nothing, until go test gave up. It
// ends, and says what its goroutines wait for.
func TestAHangSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	for name, hang := range hangs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := exec.Command(os.Args[0], "-test.run=^TestHang$", "-test.timeout=5m")
			child.Env = append(os.Environ(), "TESTUTIL_HANG="+name)
			out, err := child.CombinedOutput()
			if hangs := hang.says != nil; (err != nil) != hangs || strings.Contains(string(out), "panic: testutil: ") != hangs {
				t.Errorf("it has ended with: %v", err)
			}
			for _, want := range hang.says {
				if !strings.Contains(string(out), want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// A test that ends is not judged, however long it takes, and leaves nothing
// behind: neither a timer nor a goroutine that looks at the ensemble.
func TestATestThatEndsIsNotJudged(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			Start(t, InMemory(), WithTimeLimit(time.Hour), WithLogger(func(string, ...any) {}))
			time.Sleep(time.Hour - time.Second)
		})
		runtime.GC()
	}
	for until := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(lookPause) {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// Sockets do not belong into a bubble.
func TestSocketsAreRefusedInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if e, err := New(); e != nil || !errors.Is(err, errSockets) {
			t.Errorf("an ensemble: %v", err)
		}
		e := Start(t, InMemory())
		if _, err := e.ClientNet("a").Listen(); !errors.Is(err, errSockets) {
			t.Errorf("the network of a client: %v", err)
		}
	})
}
