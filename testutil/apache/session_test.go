package apache

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// TestSessionPassword compares the generator with the numbers that
// java.util.Random gives for the seed 42.
func TestSessionPassword(t *testing.T) {
	password := sessionPassword(42 ^ 0xB3415C00)
	for i, want := range []int32{-1170105035, 234785527, -1360544799, 205897768} {
		if got := int32(binary.LittleEndian.Uint32(password[4*i:])); got != want {
			t.Errorf("number %d = %d, want %d", i, got, want)
		}
	}
}

// A client that reconnects at once may take its session back before our request
// is answered: then ExpireSession tries again.
func TestExpireSessionTriesAgain(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers int // the number of frames a member sends before it disconnects, for each try
		tries   int
		ok      bool
	}{
		{"taken before we were let in", 0, 2, true},
		{"taken before its end was confirmed", 1, 2, true},
		{"always taken", 0, 100, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			attached := 0
			go func() { // a member; ends with its listener
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					var head [4]byte
					_, _ = io.ReadFull(conn, head[:])
					if string(head[:]) == "srvr" {
						_, _ = io.WriteString(conn, "Mode: standalone\n")
					} else {
						frames := 2
						if attached++; attached < test.tries {
							frames = test.answers
						}
						for range frames {
							_, _ = conn.Write(frame(append(make([]byte, 8), "session, and more"...)))
						}
						_ = conn.(*net.TCPConn).CloseWrite()
						_, _ = io.Copy(io.Discard, conn)
					}
					conn.Close()
				}
			}()
			e := &Ensemble{members: []*process{{address: l.Addr().String(), run: &run{}}}}
			if err := e.ExpireSession(7); (err == nil) != test.ok {
				t.Errorf("after %d tries: %v", attached, err)
			}
		})
	}
}
