package acceptance_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The steps of "Backups" in docs/deploy.md, on three real members. Between the
// backup and its restore the lock is handed over, ids are used, and the
// configuration changes. Each step is seen to be needed.
func TestABackupIsRestored(t *testing.T) {
	parallel(t)
	const path, config = "/suite/restored", "/suite/config"
	ens := apache.Start(t, 3)
	lock := func(c *framework.Client) recipes.Acquirer { return kinds[0].of(t, c, path) }
	ids := func(c *framework.Client) *counter.Counter {
		n, err := counter.New(c, "/suite/ids")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a, b := client(t, ens), client(t, ens)
	lasting(t, a, config)
	configure(t, a, config, "before")
	reserve(t, ids(a), 100)
	held := acquire(t, t.Context(), lock(a))
	waiting := acquiring(t.Context(), lock(b))
	inLine(t, a, path, 2)
	backup := backUp(t, ens)

	configure(t, a, config, "after")
	used := reserve(t, ids(a), 1000)
	remembered := held.Token() // by a resource
	for range 3 {
		release(t, held)
		held = granted(t, waiting)
		remembered = held.Token()
		a, b = b, a
		waiting = acquiring(t.Context(), lock(b))
		inLine(t, a, path, 2)
	}

	// Step 1.
	if n := connections(t, ens); n <= ens.Members() {
		t.Errorf("%d connections while clients are there: the look does not show them", n)
	}
	for _, c := range []*framework.Client{b, a} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, waiting, framework.ErrClosed)
	for end := time.Now().Add(load.Patience); connections(t, ens) > ens.Members(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			judge.Fatalf(t, "clients are left")
		}
	}
	time.Sleep(timeout)
	// Step 2.
	for member := range ens.Members() {
		if err := ens.Stop(member); err != nil {
			t.Fatal(err)
		}
	}
	for member := range ens.Members() {
		restore(t, backup, ens.DataDir(member))
		if err := ens.Restart(member); err != nil {
			t.Fatal(err)
		}
	}
	// Step 3: the contenders of the backup are back, and leave.
	operator := client(t, ens)
	inLine(t, operator, path, 2)
	nothingLeft(t, operator, path)
	// Step 4: the ids that were used would be handed out again.
	n := ids(operator)
	if now, err := n.Get(t.Context()); err != nil || now >= used {
		t.Fatalf("the counter is %d, %v, and %d was used: the step is not needed", now, err, used)
	}
	if err := n.Set(t.Context(), used); err != nil {
		t.Fatal(err)
	}
	// Steps 5 and 6: the tokens begin again below the remembered one.
	c := client(t, ens)
	again := acquire(t, t.Context(), lock(c))
	if again.Token().Compare(remembered) >= 0 {
		judge.Errorf(t, "token %v after %v: the step is not needed", again.Token(), remembered)
	}
	last := again.Token()
	release(t, again)
	d := client(t, ens)
	next := acquire(t, t.Context(), lock(d))
	if next.Token().Compare(last) <= 0 {
		judge.Errorf(t, "token %v after %v", next.Token(), last)
	}
	release(t, next)
	if first, err := ids(c).Reserve(t.Context(), 1); err != nil || first != used+1 {
		t.Errorf("id %d is handed out, %v, and %d was the last", first, err, used)
	}
	if data, _, err := d.Get(t.Context(), config); err != nil || string(data) != "before" {
		t.Errorf("the configuration is %q, %v", data, err)
	}
	nothingLeft(t, d, path)
}

func configure(t *testing.T, c *framework.Client, path, data string) {
	t.Helper()
	if _, err := c.Set(t.Context(), path, []byte(data), -1); err != nil {
		t.Fatal(err)
	}
}

// reserve reserves n ids, and returns the last one.
func reserve(t *testing.T, n *counter.Counter, count int64) (last int64) {
	t.Helper()
	first, err := n.Reserve(t.Context(), count)
	if err != nil {
		t.Fatal(err)
	}
	return first + count - 1
}

// connections asks each member how many connections it has, that of the
// question included, and returns the sum.
func connections(t *testing.T, ens *apache.Ensemble) (sum int) {
	t.Helper()
	for _, member := range strings.Split(ens.Servers(), ",") {
		conn, err := net.Dial("tcp", member)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, "srvr")
		text, readErr := io.ReadAll(conn)
		_ = conn.Close()
		_, number, _ := strings.Cut(string(text), "\nConnections: ")
		number, _, _ = strings.Cut(number, "\n")
		n, parseErr := strconv.Atoi(number)
		if err := errors.Join(err, readErr, parseErr); err != nil {
			t.Fatalf("%s: %v: %q", member, err, text)
		}
		sum += n
	}
	return sum
}

// backUp copies the snapshots, and then the logs, of a member that serves.
func backUp(t *testing.T, ens *apache.Ensemble) (copied string) {
	t.Helper()
	copied = t.TempDir()
	member := (ens.Leader() + 1) % ens.Members()
	c := client(t, ens)
	if err := c.Sync(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(ens.DataDir(member), "version-2")
	for _, kind := range []string{"snapshot.*", "log.*"} {
		files, err := filepath.Glob(filepath.Join(data, kind))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", kind, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(filepath.Join(copied, filepath.Base(file)), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return copied
}

// restore puts a backup in place of all that a member has, but myid.
func restore(t *testing.T, backup, dataDir string) {
	t.Helper()
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "myid" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dataDir, e.Name())))
		}
	}
	if err = errors.Join(err, os.CopyFS(filepath.Join(dataDir, "version-2"), os.DirFS(backup))); err != nil {
		t.Fatal(fmt.Errorf("restore: %w", err))
	}
}
