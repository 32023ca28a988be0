package page_test

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// teller gives every connection the same answer, and counts them.
type teller struct {
	address string
	asked   atomic.Int32
}

// tells starts one, outside of any bubble.
func tells(t *testing.T, answer string) *teller {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	one := &teller{address: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			one.asked.Add(1)
			_, _ = io.ReadFull(conn, make([]byte, 4))
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	return one
}

// toldRows returns the text of each row of the page Ensemble.
func toldRows(body string) (rows []string) {
	for _, row := range regexp.MustCompile(`<tr><th scope="row">.*</tr>`).FindAllString(body, -1) {
		rows = append(rows, strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(row, " ")), " "))
	}
	return rows
}

// TestServersAreAskedForAll: however many look, each server is asked every ten
// seconds at most. What it tells is shown, and the member that has the page's
// session is marked.
func TestServersAreAskedForAll(t *testing.T) {
	var tellers []*teller
	var servers, told []string
	for i, role := range []string{"follower", "leader", "follower"} {
		one := tells(t, fmt.Sprintf("Zookeeper version: 3.9.%d-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on 2024-10-17 23:21 UTC\nLatency min/avg/max: %[1]d/0.42%[1]d1/2%[1]d\n"+
			"Received: 1403\nSent: 1398\nConnections: 1%[1]d\nOutstanding: 0\nZxid: 0x100000012\nMode: %[2]s\nNode count: 25\n", i, role))
		tellers, servers = append(tellers, one), append(servers, one.address)
		told = append(told, fmt.Sprintf("%s 3.9.%d %[2]d/0.42%[2]d1/2%[2]d ms 1%[2]d", role, i))
	}
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		before := w.Sessions()
		network := w.Embedded.ClientNet("page")
		p := page.New(strings.Join(servers, ","), page.WithClient(framework.WithDialer(func(_, address string, timeout time.Duration) (net.Conn, error) {
			return network.Dial("tcp", w.Address(slices.Index(servers, address)), timeout)
		})))
		defer p.Close()
		const step = time.Second / 4
		asks := make([][]time.Time, len(tellers))
		for i := range int(25 * time.Second / step) {
			if i == 0 || i == 18*4 { // a stream ends after 20s
				for range 5 {
					follow(t, p, "topic=ensemble")
				}
			}
			time.Sleep(step)
			synctest.Wait()
			for j, one := range tellers {
				for range int(one.asked.Load()) - len(asks[j]) {
					asks[j] = append(asks[j], time.Now())
				}
			}
		}
		for i, all := range asks {
			if len(all) < 2 || len(all) > 3 {
				t.Errorf("server %d was asked %d times in 25s", i, len(all))
			}
			for j := 1; j < len(all); j++ {
				if gap := all[j].Sub(all[j-1]); gap <= 10*time.Second-step {
					t.Errorf("server %d was asked %v after the last time", i, gap)
				}
			}
		}
		here := func() (member int) {
			t.Helper()
			for _, s := range w.Sessions() {
				if !slices.ContainsFunc(before, func(other testutil.SessionInfo) bool { return other.ID == s.ID }) {
					member = w.MemberOf(s.ID)
				}
			}
			var want []string
			for i := range servers {
				mark := ""
				if i == member {
					mark = " this page"
				}
				want = append(want, servers[i]+mark+" "+told[i])
			}
			if got := toldRows(sees(t, p, "/ensemble")); !slices.Equal(got, want) {
				t.Errorf("got %q\nwant %q", got, want)
			}
			return member
		}
		first := here()
		must(t, w.Stop(first))
		time.Sleep(30 * time.Second)
		follow(t, p, "topic=ensemble")
		time.Sleep(5 * time.Second)
		if here() == first {
			t.Errorf("it is still connected to member %d, which has stopped", first)
		}
	}, testutil.WithMembers(3))
}
