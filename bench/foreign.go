package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed kazoowork.py
var kazooProgram []byte

//go:embed kazootrees.py
var kazooTreesProgram []byte

//go:embed Curator.java
var curatorProgram []byte

//go:embed CuratorTrees.java
var curatorTreesProgram []byte

// foreign is another process that does the work.
type foreign struct {
	process *process
	in      io.WriteCloser
	out     *bufio.Reader
	errors  *bytes.Buffer // read once it has ended
}

func startKazoo(recipe string, session time.Duration) func(context.Context, place) (peer, error) {
	return func(ctx context.Context, at place) (peer, error) {
		return at.startPython(ctx, "kazoowork.py", kazooProgram, recipe, fmt.Sprint(session.Seconds()))
	}
}

func startKazooTrees(ctx context.Context, at place) (peer, error) {
	return at.startPython(ctx, "kazootrees.py", kazooTreesProgram)
}

// startPython starts a program that needs Kazoo.
func (at place) startPython(ctx context.Context, file string, program []byte, args ...string) (peer, error) {
	for _, python := range []string{"python3", "/usr/bin/python3"} { // the system's own interpreter has the system's packages
		if exec.CommandContext(ctx, python, "-c", "import kazoo").Run() == nil {
			path, err := at.write(file, program)
			if err != nil {
				return nil, err
			}
			return startForeign(ctx, exec.Command(python, append([]string{path, at.address, at.root}, args...)...))
		}
	}
	return nil, fmt.Errorf("%w: python3 with kazoo", errMissing)
}

func startCurator(recipe string, session time.Duration) func(context.Context, place) (peer, error) {
	return func(ctx context.Context, at place) (peer, error) {
		return at.startJava(ctx, "Curator", curatorProgram, recipe, fmt.Sprint(session.Milliseconds()))
	}
}

func startCuratorTrees(ctx context.Context, at place) (peer, error) {
	return at.startJava(ctx, "CuratorTrees", curatorTreesProgram)
}

// startJava starts a program that needs Curator: Debian's, or the jars in
// ZKR_CURATOR_HOME.
func (at place) startJava(ctx context.Context, class string, program []byte, args ...string) (peer, error) {
	jars := "/usr/share/java/curator-recipes.jar:/usr/share/java/curator-x-discovery.jar"
	if home := os.Getenv("ZKR_CURATOR_HOME"); home != "" {
		jars = filepath.Join(home, "*")
	} else {
		for _, jar := range filepath.SplitList(jars) {
			if _, err := os.Stat(jar); err != nil {
				return nil, fmt.Errorf("%w: %s", errMissing, jar)
			}
		}
	}
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, fmt.Errorf("%w: a JDK", errMissing)
	}
	if _, err := os.Stat(filepath.Join(at.dir, class+".class")); err != nil { // it is compiled once
		source, err := at.write(class+".java", program)
		if err != nil {
			return nil, err
		}
		if said, err := exec.CommandContext(ctx, "javac", "-cp", jars, "-d", at.dir, source).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("javac: %w: %s", err, said)
		}
	}
	classes := jars + string(os.PathListSeparator) + at.dir
	return startForeign(ctx, exec.Command("java", append([]string{"-Djute.maxbuffer=67108864", "-cp", classes, class, at.address, at.root}, args...)...))
}

// write writes a file, unless an earlier process of the peer has, and returns
// its path.
func (at place) write(file string, text []byte) (string, error) {
	path := filepath.Join(at.dir, file)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, os.WriteFile(path, text, 0o600)
}

// startForeign starts a process, and waits until it is connected.
func startForeign(ctx context.Context, cmd *exec.Cmd) (peer, error) {
	f := &foreign{errors: &bytes.Buffer{}}
	cmd.Stderr = f.errors
	var err error
	if f.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	f.out = bufio.NewReader(out)
	if f.process, err = startProcess(cmd); err != nil {
		return nil, err
	}
	line, err := f.answer(ctx, time.Minute)
	if err == nil && line != "ready" {
		err = fmt.Errorf("%s printed %q, want \"ready\"", cmd, line)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// run asks for the work. The answer is the number of cycles, how long they
// took, and the median and the longest of them, in seconds.
func (f *foreign) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	if _, err := fmt.Fprintln(f.in, w.threads, w.locks, d.Seconds()); err != nil {
		return outcome{}, err
	}
	line, err := f.answer(ctx, d+time.Minute)
	if err != nil {
		return outcome{}, err
	}
	got := outcome{evenness: 1}
	var seconds [3]float64
	_, err = fmt.Sscan(line, &got.cycles, &seconds[0], &seconds[1], &seconds[2])
	for i, d := range []*time.Duration{&got.took, &got.median, &got.longest} {
		*d = time.Duration(seconds[i] * float64(time.Second))
	}
	return got, err
}

// answer waits for a line of output.
func (f *foreign) answer(ctx context.Context, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("timed out: no answer"))
	defer cancel()
	stop := context.AfterFunc(ctx, f.process.kill) // it ends the read
	line, err := f.out.ReadString('\n')
	if stop() && err == nil {
		return strings.TrimSpace(line), nil
	}
	f.process.kill()
	return "", fmt.Errorf("%w: %s", errors.Join(context.Cause(ctx), err), f.errors)
}

func (f *foreign) close() {
	_ = f.in.Close() // makes it end
	select {
	case <-f.process.ended:
	case <-time.After(patience):
		f.process.kill()
	}
}
