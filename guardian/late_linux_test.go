package guardian_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/guarding"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

const (
	writerSessions = 4 // of a process, each with a lock
	// A short session timeout makes the process call other members within a few
	// seconds after its own has stopped.
	writerTimeout = 4 * time.Second
	// Those who wait outlive that.
	heirTimeout = 15 * time.Second
)

// write holds a lock in each of several sessions, and writes in all of them as
// fast as it can, until it is killed.
func write() {
	g, err := guardian.Find()
	must(err)
	ctx := context.Background()
	for i := range writerSessions {
		c, err := framework.New(os.Getenv("GUARDIAN_SERVERS"), append(g.Options(), framework.WithSessionTimeout(writerTimeout))...)
		must(err)
		mutex, err := locks.NewMutex(c, fmt.Sprint("/lock", i))
		must(err)
		lease, err := mutex.Acquire(ctx)
		must(err)
		s, err := c.Session()
		must(err)
		fmt.Printf("session %d\n", s.ID())
		data := fmt.Sprint("/data", i)
		for _, op := range []func() error{
			func() error { _, err := c.Set(ctx, data, []byte("late?"), -1); return err },
			func() error {
				_, err := lease.Multi(ctx, &zk.SetDataRequest{Path: data, Data: []byte("late?"), Version: -1})
				return err
			},
			func() error {
				path, err := c.Create(ctx, data+"/e-", nil, zk.FlagEphemeral|zk.FlagSequence)
				if err == nil {
					err = c.Delete(ctx, path, -1)
				}
				return err
			},
		} {
			for range 4 {
				go func() { // until the end
					for {
						if err := op(); err != nil {
							time.Sleep(time.Millisecond)
						}
					}
				}()
			}
		}
	}
	fmt.Println("held", g.Err())
	select {}
}

// startWriter starts a writer, and returns its sessions.
func startWriter(t *testing.T, servers, socket string) (cmd *exec.Cmd, sessions []int64) {
	t.Helper()
	cmd, lines := startRole(t, "writer", servers, guardian.Variable+"="+socket)
	for lines.Scan() {
		var id int64
		switch _, err := fmt.Sscanf(lines.Text(), "session %d", &id); {
		case err == nil:
			sessions = append(sessions, id)
		case lines.Text() == "held <nil>":
			return cmd, sessions
		default:
			t.Fatal(lines.Text())
		}
	}
	t.Fatal("the writer has ended")
	return nil, nil
}

// A transaction is an entry of a member's log, which has all that was executed,
// in order.
type transaction struct {
	zxid, session int64
	op            wire.Op
	at            int64 // milliseconds since 1970
}

// transactions reads the logs of a member.
func transactions(t *testing.T, dir string) (all []transaction) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "version-2", "log.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transaction log in %s: %v", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		read, err := parseLog(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, read...)
	}
	return all
}

// parseLog reads a log: 16 bytes of header, and of each transaction a checksum
// of 8 bytes, its length, its header and body, and the byte 'B'. A length of
// zero is what the file was filled up with.
func parseLog(text []byte) (all []transaction, err error) {
	if len(text) < 16 || string(text[:4]) != "ZKLG" {
		return nil, fmt.Errorf("it begins with %q", text[:min(len(text), 16)])
	}
	for text = text[16:]; len(text) >= 12; {
		n := int(binary.BigEndian.Uint32(text[8:]))
		if n == 0 {
			return all, nil
		}
		if text = text[12:]; n < 32 || len(text) < n+1 {
			return all, io.ErrUnexpectedEOF
		}
		one := transaction{
			session: int64(binary.BigEndian.Uint64(text)),
			zxid:    int64(binary.BigEndian.Uint64(text[12:])),
			at:      int64(binary.BigEndian.Uint64(text[20:])),
			op:      opAt(text[28:]),
		}
		if one.op == wire.OpMulti && anyRefused(text[32:n]) {
			one.op = refused
		}
		all, text = append(all, one), text[n+1:]
	}
	return all, nil
}

// anyRefused reports whether a part of a multi was refused, and so all of it.
// Its body is the number of parts, and of each its type, its length, which may
// be -1, and its body.
func anyRefused(body []byte) bool {
	parts := binary.BigEndian.Uint32(body)
	for body = body[4:]; parts > 0 && len(body) >= 8; parts-- {
		if opAt(body) == refused {
			return true
		}
		n := int(int32(binary.BigEndian.Uint32(body[4:])))
		body = body[min(8+max(n, 0), len(body)):]
	}
	return false
}

func opAt(text []byte) wire.Op { return wire.Op(int32(binary.BigEndian.Uint32(text))) }

// executed returns the transactions in the logs of most members. What fewer
// have is left out: some of that was never committed, as what a leader has
// logged that was deposed.
func executed(logs [][]transaction) (all []transaction) {
	count := map[transaction]int{}
	for _, log := range logs {
		for _, one := range log {
			if count[one]++; count[one] == len(logs)/2+1 {
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b transaction) int { return cmp.Compare(a.zxid, b.zxid) })
	return all
}

// refused is the type of a transaction that changes nothing.
const refused wire.Op = -1

// A death is that of a process with sessions, in milliseconds since 1970.
type death struct {
	sessions []int64
	at       int64
}

// A verdict says what was executed of what a process has sent before its death.
// Late is what was executed behind the first end of a session after the death.
type verdict struct {
	late, ends      []transaction
	open            []int64 // sessions without an end
	last            int64   // when the last of those ends was that came after the death; 0: there was none
	before, refused int     // writes: before that end, and refused behind it
}

func (d death) judge(history []transaction) (v verdict) {
	v.open = slices.Clone(d.sessions)
	for _, one := range history {
		if one.op == wire.OpCloseSession {
			v.open = slices.DeleteFunc(v.open, func(id int64) bool { return id == one.session })
		}
		switch {
		case !slices.Contains(d.sessions, one.session):
		case one.op == wire.OpCloseSession && one.at < d.at: // it has expired while the process lived
		case one.op == wire.OpCloseSession:
			v.ends = append(v.ends, one)
			v.last = max(v.last, one.at)
		case one.op == refused:
			if len(v.ends) > 0 {
				v.refused++
			}
		case len(v.ends) > 0:
			v.late = append(v.late, one)
		case one.op != wire.OpCreateSession:
			v.before++
		}
	}
	return v
}

// judgeAll judges deaths by the transaction logs of all members. It returns how
// many writes there were before the ends, refused behind them, and executed.
func judgeAll(t *testing.T, ens *apache.Ensemble, deaths []death) (verdicts []verdict, written, refused, late int) {
	t.Helper()
	var logs [][]transaction
	for member := range ens.Members() {
		logs = append(logs, transactions(t, ens.DataDir(member)))
	}
	history := executed(logs)
	for i, d := range deaths {
		v := d.judge(history)
		verdicts, written, refused, late = append(verdicts, v), written+v.before, refused+v.refused, late+len(v.late)
		if len(v.late) > 0 {
			judge.Errorf(t, "kill %d: %+v: executed late: %+v; its sessions ended by %+v", i, d, v.late[:min(len(v.late), 5)], v.ends)
		}
		if len(v.open) > 0 {
			t.Errorf("kill %d: %+v: sessions have no end: %v", i, d, v.open)
		}
	}
	return verdicts, written, refused, late
}

// newHeirs returns a lock of another client for each session of a writer, and
// creates what the writer writes to.
func newHeirs(t *testing.T, ens *apache.Ensemble) (heirs []*locks.Mutex) {
	t.Helper()
	client := func() *framework.Client {
		return connect(t, ens.Servers(), framework.WithRetry(retry.Forever(100*time.Millisecond))) // through elections
	}
	c := client()
	for i := range writerSessions {
		mutex, err := locks.NewMutex(client(), fmt.Sprint("/lock", i))
		if err != nil {
			t.Fatal(err)
		}
		heirs = append(heirs, mutex)
		if _, err := c.Create(t.Context(), fmt.Sprint("/data", i), nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
	}
	return heirs
}

// Nothing that a dead process has sent is executed once one of its sessions is
// closed, and so before another process has what it held: not what was under
// way, not what a member had taken and not read, and not by connections that it
// was making. The transaction logs of all members say so.
func TestNothingIsExecutedLate(t *testing.T) {
	kills := bubble.Draw(1, 30)
	ens := apache.Start(t, 3, apache.WithSessionTimeouts(time.Second, heirTimeout))
	socket := guarding.Daemon(t, ens.Servers())
	heirs := newHeirs(t, ens)
	follower := func() int { return (ens.Leader() + 1 + rand.IntN(2)) % 3 }
	most := func(kills int) int { return kills/2 + 1 }
	refusals := 0
	for _, of := range []struct {
		name string
		at   func() int          // the member that stops before the process is killed; nil: none
		most time.Duration       // how long before that
		soon func(kills int) int // behind how many deaths the sessions end soon, at least
	}{
		{"all members run", nil, 0, most},
		// It is back before the others have dropped it, and executes what it has
		// not read yet.
		{"a follower stops for a moment", follower, 100 * time.Millisecond, most},
		// The process begins to look for another member.
		{"a follower has stopped", follower, writerTimeout * 3 / 4, most},
		// The others notice that late, and elect another one.
		{"the leader has stopped", ens.Leader, writerTimeout * 3 / 4, func(int) int { return 1 }},
	} {
		t.Run(of.name, func(t *testing.T) {
			var deaths []death
			for range kills {
				writer, sessions := startWriter(t, ens.Servers(), socket)
				deaths = append(deaths, death{sessions, killBeside(t, ens, writer, heirs, of.at, of.most)})
			}
			time.Sleep(time.Second) // until the last one, resumed, has read what it was sent
			verdicts, written, refused, late := judgeAll(t, ens, deaths)
			refusals += refused
			soon := 0
			for i, v := range verdicts {
				d := deaths[i]
				if len(v.ends) > 0 && v.last-d.at <= writerTimeout.Milliseconds()/2 {
					soon++
				} else if of.at == nil {
					t.Errorf("kill %d: %+v: its sessions ended by %+v: by themselves?", i, d, v.ends)
				}
			}
			if kills > 10 && soon < of.soon(kills) {
				t.Errorf("only %d of %d had their sessions ended soon", soon, kills)
			}
			if written < 10*kills {
				t.Errorf("the dead have written %d times: too few to be a test", written)
			}
			t.Logf("%d kills: %d writes of %d sessions; %d had their sessions ended within %v; %d so far were refused behind the end, %d executed behind it", kills, written, kills*writerSessions, soon, writerTimeout/2, refusals, late)
		})
	}
	if refusals == 0 && kills > 10 {
		t.Error("nothing was under way at any death")
	}
}

// killBeside kills a process, whose locks others wait for. A member may have
// stopped some time before, and goes on once all locks have passed on. It
// returns when it killed the process, in milliseconds since 1970.
func killBeside(t *testing.T, ens *apache.Ensemble, process *exec.Cmd, heirs []*locks.Mutex, at func() int, most time.Duration) (died int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var waiting sync.WaitGroup
	defer func() {
		cancel()
		waiting.Wait()
	}()
	granted := make(chan error, len(heirs))
	for _, mutex := range heirs {
		waiting.Go(func() {
			lease, err := mutex.Acquire(ctx)
			granted <- err
			if err == nil {
				_ = lease.Release(ctx) // the session may be lost in an election
			}
		})
	}
	time.Sleep(rand.N(300 * time.Millisecond))
	if at != nil {
		stopped := at()
		if stopped < 0 {
			t.Fatal("nobody leads")
		}
		if err := ens.Pause(stopped); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(ens.Resume(stopped), ens.WaitServing(t.Context())); err != nil {
				t.Fatal(err)
			}
		}()
		time.Sleep(rand.N(most))
	}
	died = time.Now().UnixMilli()
	if err := process.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range heirs {
		if err := <-granted; err != nil {
			t.Errorf("the next one is not granted: %v", err)
		}
	}
	_ = process.Wait()
	return died
}

// The judge finds a write behind the end of any session of a process that has
// died.
func TestLate(t *testing.T) {
	frame := func(zxid, session int64, op wire.Op, parts ...wire.Op) []byte {
		text := binary.BigEndian.AppendUint64(nil, 0) // checksum
		text = binary.BigEndian.AppendUint32(text, uint32(32+min(len(parts), 1)*4+8*len(parts)))
		text = binary.BigEndian.AppendUint64(text, uint64(session))
		text = binary.BigEndian.AppendUint32(text, 7)
		text = binary.BigEndian.AppendUint64(text, uint64(zxid))
		text = binary.BigEndian.AppendUint64(text, uint64(1000+zxid))
		text = binary.BigEndian.AppendUint32(text, uint32(op))
		if len(parts) > 0 {
			text = binary.BigEndian.AppendUint32(text, uint32(len(parts)))
		}
		for _, part := range parts {
			text = binary.BigEndian.AppendUint32(text, uint32(part))
			text = binary.BigEndian.AppendUint32(text, 0) // without a body
		}
		return append(text, 'B')
	}
	text := slices.Concat([]byte("ZKLG"), make([]byte, 12),
		frame(1, 10, wire.OpCreateSession), frame(2, 10, wire.OpSetData), frame(3, 11, wire.OpSetData), frame(4, 12, wire.OpSetData),
		frame(5, 10, wire.OpCloseSession), frame(6, 11, wire.OpSetData), frame(7, 11, wire.OpCloseSession), frame(8, 12, wire.OpSetData), frame(9, 11, refused),
		frame(10, 11, wire.OpMulti, wire.OpSetData, refused), frame(11, 11, wire.OpMulti, wire.OpSetData), make([]byte, 64))
	all, err := parseLog(text)
	if err != nil || len(all) != 11 {
		t.Fatalf("%+v, %v", all, err)
	}
	for died, want := range map[int64]struct {
		late    string
		refused int
		last    int64
	}{
		1004: {"6 8 11", 2, 1007},
		1006: {"8 11", 2, 1007}, // the first one has expired before
		2000: {"", 0, 0},
	} {
		v := death{[]int64{10, 11, 12}, died}.judge(all)
		var got []string
		for _, one := range v.late {
			got = append(got, fmt.Sprint(one.zxid))
		}
		if strings.Join(got, " ") != want.late || v.refused != want.refused || v.last != want.last || !slices.Equal(v.open, []int64{12}) {
			t.Errorf("died at %d: %v is late, want %s; %d refused; the last end at %d; %d have none", died, got, want.late, v.refused, v.last, v.open)
		}
	}
	if _, err := parseLog(text[:40]); err == nil {
		t.Error("a part of a transaction is no error")
	}
}
