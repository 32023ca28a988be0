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
	"strconv"
	"strings"
	"time"
)

//go:embed kazoolock.py
var kazooProgram []byte

//go:embed Curator.java
var curatorProgram []byte

// foreign is a process in another language that does the work.
type foreign struct {
	process *process
	in      io.WriteCloser
	out     *bufio.Reader
	errors  *bytes.Buffer // read once it has ended
}

func startKazoo(ctx context.Context, s *site) (peer, error) {
	for _, python := range []string{"python3", "/usr/bin/python3"} { // the system's own interpreter has the system's packages
		if exec.CommandContext(ctx, python, "-c", "import kazoo").Run() == nil {
			return s.foreign(ctx, "kazoolock.py", kazooProgram, python)
		}
	}
	return nil, fmt.Errorf("%w: python3 with kazoo", errMissing)
}

func startCurator(ctx context.Context, s *site) (peer, error) {
	const jar = "/usr/share/java/curator-recipes.jar"
	if _, err := os.Stat(jar); err != nil {
		return nil, fmt.Errorf("%w: %s", errMissing, jar)
	}
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, fmt.Errorf("%w: a JDK", errMissing)
	}
	return s.foreign(ctx, "Curator.java", curatorProgram, "java", "-cp", jar)
}

// foreign starts a program from its source, and waits until it is connected.
func (s *site) foreign(ctx context.Context, file string, source []byte, command ...string) (peer, error) {
	servers, err := s.zookeeper(ctx)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, file)
	if err := os.WriteFile(path, source, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], append(command[1:], path, servers, s.path())...)
	f := &foreign{errors: &bytes.Buffer{}}
	cmd.Stderr = f.errors
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
		err = fmt.Errorf("%s printed %q, want \"ready\"", file, line)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *foreign) run(ctx context.Context, w work, d time.Duration) (float64, error) {
	if _, err := fmt.Fprintln(f.in, w.threads, w.locks, d.Seconds()); err != nil {
		return 0, err
	}
	line, err := f.answer(ctx, d+time.Minute)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(line, 64)
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
