//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const page = "../../docs/start.md"

// longest is how long all blocks may take: several times as long as on a busy
// machine.
const longest = 10 * time.Minute

// The page's commands find stand-ins of programs, which are this test binary:
// they do what the page needs, without a network and without containers.
func TestMain(m *testing.M) {
	switch role := os.Getenv("START_ROLE"); role {
	case "":
		os.Exit(m.Run())
	default:
		if err := standIn(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, role, err)
			os.Exit(1)
		}
	}
}

// standIn is git, which finds this repository; go, whose go mod tidy chooses
// what this module requires; curl; or docker, whose image is a directory, which
// is all that its container sees if the test is root.
func standIn(role string, args []string) error {
	const image = "image"
	switch role {
	case "go":
		if slices.Equal(args, []string{"mod", "tidy"}) {
			return tidy()
		}
		return syscall.Exec(os.Getenv("START_GO"), append([]string{"go"}, args...), os.Environ())
	case "git":
		if args[0] != "clone" {
			return fmt.Errorf("git %q", args)
		}
		return os.Symlink(os.Getenv("START_REPOSITORY"), filepath.Base(args[len(args)-1]))
	case "curl":
		answer, err := http.Get(args[len(args)-1])
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(os.Stdout, answer.Body)
		return err
	}
	if args[0] == "build" {
		text, err := os.ReadFile("Dockerfile")
		if err != nil {
			return err
		}
		copied := regexp.MustCompile(`(?m)^COPY (\S+) /(\S+)$`).FindStringSubmatch(string(text))
		if err := os.Mkdir(image, 0o755); err != nil {
			return err
		}
		program, err := os.ReadFile(copied[1])
		if err != nil {
			return err
		}
		fmt.Println("sha256:0000")
		return os.WriteFile(filepath.Join(image, copied[2]), program, 0o755)
	}
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		return err
	}
	program := regexp.MustCompile(`(?m)^ENTRYPOINT \["/(\S+)"\]$`).FindStringSubmatch(string(text))[1]
	var environment []string
	for i, arg := range args {
		if arg == "--env" {
			name, value, given := strings.Cut(args[i+1], "=")
			if !given {
				value = os.Getenv(name)
			}
			environment = append(environment, name+"="+value)
		}
	}
	if os.Getuid() == 0 {
		if err := syscall.Chroot(image); err != nil {
			return err
		}
		if err := os.Chdir("/"); err != nil {
			return err
		}
		if err := syscall.Setuid(65532); err != nil {
			return err
		}
	} else if err := os.Chdir(image); err != nil {
		return err
	}
	return syscall.Exec(program, []string{program}, environment)
}

// tidy makes the module in the working directory require what this one does.
// The real one also asks for what the tests of others require.
func tidy() error {
	from := filepath.Join(os.Getenv("START_REPOSITORY"), "examples", "start")
	sums, err := os.ReadFile(filepath.Join(from, "go.sum"))
	if err != nil {
		return err
	}
	if err := os.WriteFile("go.sum", sums, 0o644); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(from, "go.mod"))
	if err != nil {
		return err
	}
	edit := []string{"mod", "edit"}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(string(mod), -1) {
		edit = append(edit, "-require="+m[1]+"@"+m[2])
	}
	return exec.Command(os.Getenv("START_GO"), edit...).Run()
}

var (
	// block is a block of the page, with the line in front of it.
	block = regexp.MustCompile("(?ms)(?:^([^\n]+)\n\n)?^```(\\w+)\n(.*?)^```$")
	// What such a line says of a file: its name, or which line the block replaces.
	isFile   = regexp.MustCompile("`([\\w.]+)`:$")
	isChange = regexp.MustCompile("^In `([\\w.]+)`, replace `(.*)` with:$")
)

const mark = "=== the next command"

// script is what the page says, for a shell.
type script struct {
	text  strings.Builder
	files map[string]string // as they are after the blocks so far
	// Of each command what it is and what it prints.
	commands, want []string
}

// add adds a block. It returns what is wrong with it.
func (s *script) add(before, language, text string) error {
	var file string
	named, change := isFile.FindStringSubmatch(before), isChange.FindStringSubmatch(before)
	switch {
	case language == "console":
		for _, each := range strings.Split("\n"+text, "\n$ ")[1:] {
			command, output, _ := strings.Cut(each, "\n")
			s.commands, s.want = append(s.commands, command), append(s.want, strings.TrimSuffix(output, "\n"))
			fmt.Fprintf(&s.text, "%s\necho '%s'\n", command, mark)
		}
		return nil
	case change != nil:
		file = change[1]
		old := change[2]
		line := "\t" + old + "\n"
		if strings.Count(s.files[file], line) != 1 {
			return fmt.Errorf("%s does not have the line %q", file, old)
		}
		s.files[file] = strings.Replace(s.files[file], line, "\t"+text, 1)
	case named != nil:
		file = named[1]
		s.files[file] = text
	default:
		return fmt.Errorf("what is this block of %s for? %s", language, text)
	}
	fmt.Fprintf(&s.text, "cat > %s <<'END OF FILE'\n%sEND OF FILE\n", file, s.files[file])
	return nil
}

// Each block of the page is done, in order, in one shell, and prints what the
// page says. The files are those of this directory in the end.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	// The page's addresses may be in use.
	for _, address := range []string{"127.0.0.1:2181", "127.0.0.1:2112"} {
		text = bytes.ReplaceAll(text, []byte(address), []byte(free(t)))
	}
	s := &script{files: map[string]string{}}
	blocks := block.FindAllStringSubmatch(string(text), -1)
	for _, m := range blocks {
		if err := s.add(m[1], m[2], m[3]); err != nil {
			t.Fatal(err)
		}
	}
	if all := strings.Count(string(text), "\n```") / 2; all != len(blocks) || len(blocks) < 15 {
		t.Fatalf("%d blocks, of which %d were found", all, len(blocks))
	}
	for _, file := range slices.Sorted(maps.Keys(s.files)) {
		if found, err := os.ReadFile(file); err != nil || string(found) != s.files[file] {
			t.Errorf("%s is not as %s has it (%v): want\n%s", file, page, err, s.files[file])
		}
	}
	stdout, stderr := run(t, s.text.String())
	got := strings.Split(stdout, mark+"\n")
	if len(got) != len(s.want)+1 {
		t.Fatalf("%d of %d commands have ended: %s%s", len(got)-1, len(s.want), stdout, stderr)
	}
	for i, want := range s.want {
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(want), regexp.QuoteMeta("..."), ".*") + "$"
		if !regexp.MustCompile(pattern).MatchString(strings.TrimSuffix(got[i], "\n")) {
			t.Errorf("%s\nprints\n%s\nbut the page says\n%s", s.commands[i], got[i], want)
		}
	}
	if t.Failed() {
		t.Log(stderr)
	}
}

// free returns an address where nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run runs a script in an empty directory, without the module proxy: what it
// needs, this module needs too.
func run(t *testing.T, script string) (stdout, stderr string) {
	t.Helper()
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	realGo, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"git", "go", "curl", "docker"} {
		wrapper := fmt.Sprintf("#!/bin/sh\nSTART_ROLE=%s exec '%s' \"$@\"\n", role, self)
		if err := os.WriteFile(filepath.Join(bin, role), []byte(wrapper), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-e", "-c", script)
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOBIN="+bin, "START_REPOSITORY="+repository, "START_GO="+realGo,
		"GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.WaitDelay = time.Second // if a command has failed, zkr server goes on
	var out, errs bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &errs
	err = shell.Run()
	_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
	if err != nil && !strings.Contains(err.Error(), "WaitDelay") {
		t.Errorf("%v: %s", err, errs.String())
	}
	return out.String(), errs.String()
}
