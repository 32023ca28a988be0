package doctor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Sessions of anybody that have more than half of what fits are told, by any
// member: five at most. Of a server that may not be asked, that is said.
func TestSessionsThatAreLarge(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after string // in the answers of the servers
		znodes        []int  // of sessions, of about 1000 bytes each; eight are half
		verdict       doctor.Verdict
		says          string
		named         int
	}{
		"none":                 {"", "", []int{7, 8}, doctor.OK, "no session", 0},
		"one of two":           {"", "", []int{7, 9}, doctor.Note, "bytes of ephemeral", 1},
		"many":                 {"", "", []int{9, 9, 9, 9, 9, 9}, doctor.Note, "bytes of ephemeral", 5},
		"dump is not answered": {"Sessions with Ephemerals (", "it is not in the list (", []int{9}, doctor.OK, "4lw.commands.whitelist", 0},
		"3.5 lists no paths":   {"Zookeeper version: 3.8", "Zookeeper version: 3.5", []int{9}, "", "", 0},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			large := make(map[string]bool)
			for i, znodes := range tt.znodes {
				c := w.ConnectNext()
				for j := range znodes {
					if _, err := c.Create(t.Context(), fmt.Sprint("/", strings.Repeat("l", 1007), i, j), nil, zk.FlagEphemeral); err != nil {
						t.Fatal(err)
					}
				}
				large[wire.SessionText(w.SessionID(c))] = znodes > 8
			}
			x := examine(t, w.Servers(), false, framework.WithDialer(saying(tt.before, tt.after)(w.Embedded)), framework.WithMaxRequest(16<<10))
			for _, a := range x.answers {
				if a.Question != "sessions" {
					continue
				}
				named := 0
				for session, is := range large {
					if strings.Contains(a.Seen, "session "+session) {
						named++
						if !is {
							t.Errorf("%s: %s is not large", name, session)
						}
					}
				}
				if a.Verdict != tt.verdict || named != tt.named || !strings.Contains(a.Seen, tt.says) {
					t.Errorf("%s: %+v", name, a)
				}
			}
			told := slices.ContainsFunc(x.answers, func(a doctor.Answer) bool { return a.Question == "sessions" })
			if told != (tt.verdict != "") {
				t.Errorf("%s: told: %t", name, told)
			}
		}, testutil.WithMembers(3))
	}
}

// Whether sessions are local is known of every member that may be asked, and of
// no other.
func TestLocalSessions(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after string // in the answers of the servers
		verdict       doctor.Verdict
		says          string
	}{
		"a follower and a leader have none": {"", "", doctor.OK, "no local sessions"},
		"dump is not answered":              {"SessionTracker dump:", "dump is not executed", doctor.OK, "not known"},
		"a leader before 3.5":               {"Global ", "", doctor.OK, "no local sessions"},
		"a follower has some":               {"dump:\nGlobal Sessions", "dump:\nLocal Sets", doctor.Fails, "has local sessions"},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			x := examine(t, w.Servers(), false, framework.WithDialer(saying(tt.before, tt.after)(w.Embedded)))
			var told []doctor.Answer
			for _, a := range x.answers {
				if a.Question == "local" {
					told = append(told, a)
				}
			}
			has := func(a doctor.Answer) bool { return a.Verdict == tt.verdict && strings.Contains(a.Seen, tt.says) }
			if len(told) != 3 || !slices.ContainsFunc(told, has) || tt.verdict == doctor.OK && slices.ContainsFunc(told, func(a doctor.Answer) bool { return !has(a) }) {
				t.Errorf("%s: %+v", name, told)
			}
		}, testutil.WithMembers(3))
	}
}

// Who ends an examination while a connect request has no answer leaves no
// session: the answer is awaited, because only it says what to close.
func TestEndedDuringAConnect(t *testing.T) {
	for nth := range int32(12) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			var asked atomic.Int32
			d, err := doctor.New(w.Servers(), true, framework.WithDialer(asking(w.Dial, func(c *wire.ConnectRequest) {
				if c.SessionID == 0 && asked.Add(1) == nth+1 {
					end()
				}
			})))
			if err != nil {
				t.Fatal(err)
			}
			d.Examine(ctx, func(doctor.Answer) {})
			if left := w.Sessions(); len(left) > 0 {
				judge.Errorf(t, "ended at connect request %d of %d: left %v", nth+1, asked.Load(), left)
			}
		}, testutil.WithMembers(1))
	}
}
