package acceptance_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
)

// stalls, like "25%60ms", delays that share of the reads and writes of all
// clients, each by at most that time. A busy machine does that to a test now
// and then; this does it all the time. A test that fails under it relies on
// something that it has not waited for, unless a recipe does.
var stalls = func() (s struct {
	percent int
	longest time.Duration
},
) {
	text := os.Getenv("ZKR_STALLS")
	if text == "" {
		return s
	}
	var longest string
	_, err := fmt.Sscanf(text, "%d%%%s", &s.percent, &longest)
	if err == nil {
		s.longest, err = time.ParseDuration(longest)
	}
	if err != nil {
		panic(fmt.Sprintf("ZKR_STALLS=%s: %v; it is meant to be like 25%%60ms", text, err))
	}
	return s
}()

func stalling(dial tamper.Dial) tamper.Dial {
	if stalls.longest <= 0 {
		return dial
	}
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return stallingConn{c}, nil
	}
}

type stallingConn struct{ net.Conn }

func (c stallingConn) Read(p []byte) (int, error) {
	stall()
	return c.Conn.Read(p)
}

func (c stallingConn) Write(p []byte) (int, error) {
	stall()
	return c.Conn.Write(p)
}

func stall() {
	if rand.IntN(100) < stalls.percent {
		time.Sleep(rand.N(stalls.longest))
	}
}
