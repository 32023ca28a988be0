package zkr_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/untrusted"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// hostileNames are names of znodes that are no paths.
func hostileNames() (names []string) {
	for _, name := range untrusted.Names {
		names = append(names, strings.ReplaceAll(name, "/", "|"))
	}
	return names
}

// hostileLines are the command lines of all that read: NAME stands for a
// hostile name. What zkr get prints without --json is data, as it is.
var hostileLines = struct{ whole, each []string }{
	whole: []string{ // these have all names in what they print
		"members /g", "members --json /g", "members --follow /g", "services", "services --json", "services --follow", "top --once /", "top --json /",
		"inspect --tree /", "inspect --tree --json /", "ls /d", "ls --json /d", "ls --recursive /", "ls --recursive --json /",
		"tree /", "tree --json /", "deadlocks /", "deadlocks --json /", "watch --tree /", "watch --tree --json /",
	},
	each: []string{
		"observe /e/NAME", "observe --json /e/NAME", "members /g/NAME", "services NAME", "services --json NAME", "services --follow NAME",
		"inspect /l/NAME", "inspect --json /l/NAME", "inspect --watch /l/NAME", "top --once /l/NAME", "deadlocks /l/NAME",
		"ls /d/NAME", "ls --recursive --json /d/NAME", "tree /d/NAME", "get --json /d/NAME", "stat /d/NAME", "stat --json /d/NAME",
		"watch /d/NAME", "watch --json /d/NAME", "counter get /d/NAME", "counter get --json /d/NAME",
		// Nothing is there.
		"observe /no/NAME", "members /no/NAME", "inspect /no/NAME", "top --once /no/NAME", "deadlocks /no/NAME", "ls /no/NAME",
		"tree /no/NAME", "get /no/NAME", "stat /no/NAME", "watch /no/NAME", "counter get /no/NAME",
		// These are wrong.
		"get NAME", "ls --layout=NAME /", "top --NAME /", "NAME", "get --servers=NAME /d", "members --layout NAME /g", "get --auth NAME /d",
		"get --servers-file=NAME /d", "get --auth-file=/no/NAME /d", "services --root NAME", "services --root /no/NAME --follow",
	},
}

// TestHostileNamesArePrinted: whatever names and data znodes have, and whatever
// a script passes on, no command that reads prints anything that a terminal may
// obey, neither to stdout nor to stderr.
func TestHostileNamesArePrinted(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGTERM) // starts a goroutine, which must not be one of a bubble's
	signal.Stop(heard)
	names := hostileNames()
	for _, line := range hostileLines.whole {
		t.Run(line, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				prepareHostile(t, w, names)
				out := printed(t, w, names, strings.Fields(line))
				isJSON := strings.Contains(line, "--json")
				for _, name := range names {
					if has := strings.Contains(out, escape.Text(name)); !has && !isJSON && !strings.HasPrefix(line, "deadlocks") {
						t.Errorf("it does not print %s:\n%s", escape.Text(name), out)
						break
					}
				}
				for part := range strings.Lines(out) {
					if isJSON && !json.Valid([]byte(part)) {
						t.Errorf("no JSON: %q", part)
					}
				}
			})
		})
	}
	for _, line := range hostileLines.each {
		t.Run(line, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				prepareHostile(t, w, names)
				for _, name := range names {
					words := strings.Fields(line)
					for i := range words {
						words[i] = strings.ReplaceAll(words[i], "NAME", name)
					}
					printed(t, w, names, words)
				}
			})
		})
	}
}

// printed runs zkr, lets things change, ends it by a signal, and returns what
// it has printed.
func printed(t *testing.T, w *bubble.World, names, words []string) string {
	t.Helper()
	net := w.ClientNet("zkr")
	var left []*framework.Client
	to := &cli.Ensemble{
		Dial: net.Dial, Signals: &cli.Signals{Arrived: make(chan os.Signal, 1)},
		Left: func(c *framework.Client) { left = append(left, c) },
	}
	var out, errs paper
	var ended sync.WaitGroup
	ended.Go(func() {
		args := words
		if !slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, "--servers") }) {
			args = slices.Insert(slices.Clone(words), 1, "--servers", w.Servers())
		}
		to.Run(args, &out, &errs, zkr.Commands...)
	})
	time.Sleep(2500 * time.Millisecond)
	changed := w.Connect("changes")
	for i, path := range []string{"/d/" + names[0] + "/new", "/g/new" + names[1], "/services/" + names[2] + "/new" + names[3], "/services/" + names[2] + "/" + names[2]} {
		if _, err := changed.Create(t.Context(), path, []byte(names[i]), zk.FlagEphemeral); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
	time.Sleep(2500 * time.Millisecond)
	_ = changed.Close()
	time.Sleep(time.Second)
	to.Signals.Arrived <- syscall.SIGTERM
	ended.Wait()
	for _, c := range left {
		_ = c.Close()
	}
	synctest.Wait()
	for name, text := range map[string]string{"stdout": out.text.String(), "stderr": errs.text.String()} {
		at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
		if at >= 0 || !utf8.ValidString(text) {
			at = max(at, 0)
			t.Errorf("zkr %q prints %q to %s", words, text[max(0, at-60):min(len(text), at+20)], name)
		}
	}
	if out.text.Len()+errs.text.Len() == 0 && words[0] != "members" && words[0] != "services" { // of which there may be none
		t.Errorf("zkr %q prints nothing", words)
	}
	return out.text.String()
}

// prepareHostile makes locks, elections, members, services and data with each
// name, and a deadlock.
func prepareHostile(t *testing.T, w *bubble.World, names []string) {
	t.Helper()
	c, d := w.Connect("others"), w.Connect("more others")
	create := func(c *framework.Client, path, data string, flags int32) {
		t.Helper()
		if err := c.MakePersistentPath(t.Context(), path[:strings.LastIndexByte(path, '/')]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(t.Context(), path, []byte(data), flags); err != nil {
			t.Fatal(err)
		}
	}
	contend := func(c *framework.Client, dir string, n int, data string) {
		t.Helper()
		create(c, fmt.Sprintf("%s/%slock-%010d", dir, zkrtest.SomeID, n), data, zk.FlagEphemeral)
	}
	for i, data := range untrusted.Data {
		name := names[i%len(names)]
		if i < len(names) {
			contend(c, "/l/"+name, 0, data)
			contend(d, "/l/"+name, 1, "web pid 1: "+name)
			contend(d, "/l2/"+name, 0, data)
			create(c, fmt.Sprintf("/e/%s/%slatch-%010d", name, zkrtest.SomeID, 0), data, zk.FlagEphemeral)
			create(c, "/g/"+name, data, zk.FlagEphemeral)
			instance, err := json.Marshal(map[string]any{"name": name, "id": name, "address": name, "payload": name, "serviceType": "DYNAMIC", "enabled": true})
			if err != nil {
				t.Fatal(err)
			}
			create(c, "/services/"+name+"/"+name, string(instance), zk.FlagEphemeral)
			create(c, "/services/"+name+"/data-"+name, data, zk.FlagEphemeral)
		}
		create(c, fmt.Sprintf("/d/%s/%d", name, i), data, 0)
		if _, err := c.Set(t.Context(), "/d/"+name, []byte(data), -1); err != nil {
			t.Fatal(err)
		}
	}
	contend(c, "/l2/"+names[0], 1, "") // c holds one and waits for the other, as d does
}
