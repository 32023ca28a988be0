package zkr_test

import (
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestMain(m *testing.M) { zkrtest.Main(m, zkr.Main, func() {}) }

// lines are the command lines of each row of the table in docs/command-line.md
// that says how long commands take. In virtual time no CMD can run: that zkr
// elect, join and lock end when one runs is shown in package run. A row without
// lines needs no ensemble.
var lines = map[string][]string{
	"lock":              {"lock /l", "lock --wait 2s /l", "lock --try /l", "lock /a /b"},
	"read":              {"read /l", "read --wait 2s /l"},
	"write":             {"write /l", "write --try /l"},
	"semaphore":         {"semaphore --max 2 /l", "semaphore --max 2 --set-max --wait 2s /l"},
	"elect":             {"elect /e -- true"},
	"observe":           {"observe /e"},
	"join":              {"join /g --id a", "join /g --id m --wait 2s"},
	"register":          {"register s --port 1"},
	"members":           {"members /g"},
	"members --follow":  {"members --follow /g"},
	"services":          {"services", "services s"},
	"services --follow": {"services --follow", "services --follow s"},
	"barrier":           {"barrier /b --members 2 -- true", "barrier /b --members 2 --wait 2s -- true"},
	"revoke":            {"revoke /l", "revoke --wait 2s /l"},
	"top":               {"top --json /"},
	"top --once":        {"top --once /"},
	"deadlocks":         {"deadlocks /"},
	"inspect":           {"inspect /l", "inspect --tree /"},
	"inspect --watch":   {"inspect --watch /l"},
	"ls":                {"ls /", "ls --recursive /"},
	"tree":              {"tree /"},
	"get":               {"get /d"},
	"stat":              {"stat /d"},
	"set":               {"set /d x"},
	"create":            {"create /n", "create --parents --ephemeral /n/m"},
	"rm":                {"rm /d", "rm --recursive /t"},
	"watch":             {"watch /d", "watch --tree /"},
	"counter":           {"counter get /c", "counter add /c 1", "counter add --once x /c 1", "counter set /c 1"},
	"bench":             {"bench --duration 10s --processes 5"},
	"doctor":            {"doctor", "doctor --slow"},
	"web":               nil, // it listens, which nothing in virtual time can
	"guard":             nil, // it listens, too
	"server":            nil, "demo": nil, "version": nil, "man": nil, "completion": nil, "help": nil,
}

// times is a row of the table. 0 is for as long as nobody ends it.
type times struct{ never, silent, signal time.Duration }

var row = regexp.MustCompile("(?m)^(`[a-z][^|\n]*`) \\| [^|\n]* \\| (\\S+) \\| (\\S+) \\| (\\S+)$")

func table(t *testing.T) map[string]times {
	t.Helper()
	page, err := os.ReadFile("../../docs/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]times{}
	for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
		var all [3]time.Duration
		for i, text := range cells[2:] {
			if text == "-" {
				continue
			}
			if all[i], err = time.ParseDuration(text); err != nil {
				t.Error(err)
			}
		}
		for _, name := range strings.Split(cells[1], ", ") {
			rows[strings.Trim(name, "`")] = times{all[0], all[1], all[2]}
		}
	}
	return rows
}

// TestEveryCommandHasABound: the table has a row for each command, and this
// test has command lines for each row.
func TestEveryCommandHasABound(t *testing.T) {
	rows := table(t)
	for name := range rows {
		if _, ok := lines[name]; !ok {
			t.Errorf("zkr %s: nothing shows the row", name)
		}
	}
	for name := range lines {
		if _, ok := rows[name]; !ok {
			t.Errorf("zkr %s: no row", name)
		}
	}
	for _, cmd := range cli.NewRoot(&cli.Ensemble{}, zkr.Commands...).Commands() {
		if _, ok := rows[cmd.Name()]; !ok {
			t.Errorf("zkr %s: no row", cmd.Name())
		}
	}
}

// TestTheBoundsOfCommands runs each line of each row against an ensemble that
// never answers, that refuses connections, and that cannot be reached: from the
// start, from the first request, and later. It ends in the time that the row
// says, and after a signal, even if nobody reads what it prints.
func TestTheBoundsOfCommands(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGTERM) // starts a goroutine, which must not be one of a bubble's
	signal.Stop(heard)
	for name, bounds := range table(t) {
		for _, line := range lines[name] {
			t.Run(line, func(t *testing.T) {
				for _, fate := range bubble.Outages {
					for _, from := range []string{"the start", "the first request", "later"} {
						bound := bounds.silent
						if from == "the start" {
							bound = bounds.never
						}
						if _, rest, ok := strings.Cut(line, "--wait "); ok && from != "later" {
							wait, err := time.ParseDuration(strings.Fields(rest)[0])
							if err != nil {
								t.Fatal(err)
							}
							bound = wait + bounds.signal + cli.LookTimeout
						}
						bubble.Run(t, func(t *testing.T, w *bubble.World) { play(t, w, line, fate, from, 0, bound, nil) })
						for _, after := range []time.Duration{0, 1500 * time.Millisecond} {
							bubble.Run(t, func(t *testing.T, w *bubble.World) {
								play(t, w, line, fate, from, after, bounds.signal, syscall.SIGTERM)
							})
						}
					}
				}
			})
		}
	}
}

// play runs a line, strikes the ensemble, and sends it a signal some time after
// that. It must end within the bound then. A bound of 0 is for a line that goes
// on.
func play(t *testing.T, w *bubble.World, line string, fate bubble.Outage, from string, after, bound time.Duration, sig os.Signal) {
	t.Helper()
	prepare(t, w)
	w.Latency(5 * time.Millisecond) // otherwise zkr bench does not end
	over, struck := make(chan struct{}), make(chan struct{})
	net := w.ClientNet("zkr")
	strike := sync.OnceFunc(func() {
		w.Begin(fate, net, over)
		close(struck)
	})
	switch from {
	case "the start":
		strike()
	case "the first request":
		net.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession {
				return testutil.Pass()
			}
			go strike()
			return testutil.Hold(over)
		})
	default:
		time.AfterFunc(5*time.Second, strike)
	}
	var left []*framework.Client
	to := &cli.Ensemble{
		Dial: net.Dial, Signals: &cli.Signals{Arrived: make(chan os.Signal, 1)},
		Left: func(c *framework.Client) { left = append(left, c) },
	}
	out := &paper{wet: sig != nil, over: over}
	ended := make(chan time.Time, 1)
	go func() {
		words := strings.Fields(line)
		to.Run(slices.Insert(words, 1, "--servers", w.Servers()), out, out, zkr.Commands...)
		ended <- time.Now()
	}()
	bubble.Await(t, "the strike", struck)
	began := time.Now()
	if sig != nil {
		time.Sleep(after)
		began = time.Now()
		to.Signals.Arrived <- sig
	}
	select {
	case at := <-ended:
		if took := at.Sub(began); bound != 0 && took > bound {
			t.Errorf("%v from %s, signal %v after %v: it ended after %v, and not within %v; it printed\n%s", fate, from, sig, after, took, bound, out.text.String())
		} else if bound == 0 && from == "later" && took > 0 {
			t.Errorf("%v: it ended after %v, and does not go on; it printed\n%s", fate, took, out.text.String())
		}
	case <-time.After(max(bound, 2*time.Minute)):
		if bound != 0 {
			t.Errorf("%v from %s, signal %v: it has not ended after %v", fate, from, sig, time.Since(began))
		}
		to.Signals.Arrived <- syscall.SIGTERM
		bubble.Await(t, "zkr ends", ended)
	}
	close(over)
	for _, c := range left {
		_ = c.Close()
	}
	time.Sleep(20 * time.Second) // it may have left a client that closes
}

// prepare makes what the lines look at.
func prepare(t *testing.T, w *bubble.World) {
	t.Helper()
	c := w.Connect("others")
	for path, flags := range map[string]int32{"/d/": 0, "/t/a/b/": 0, "/services/s/": 0, "/g/m": zk.FlagEphemeral, "/c": 0, "/l/" + zkrtest.SomeID + "lock-": zk.FlagEphemeral | zk.FlagSequence} {
		dir, name := path[:strings.LastIndexByte(path, '/')], path[strings.LastIndexByte(path, '/')+1:]
		if dir != "" {
			if err := c.MakePersistentPath(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
		}
		if name != "" {
			if _, err := c.Create(t.Context(), path, make([]byte, 8), flags); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// paper is stdout and stderr. Nobody reads what is printed if it is wet.
type paper struct {
	wet  bool
	over <-chan struct{}

	mu   sync.Mutex // guards text
	text strings.Builder
}

func (p *paper) Write(text []byte) (int, error) {
	if p.wet {
		<-p.over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}
