//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"debug/elf"
	"errors"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The Dockerfile, and the sources that it builds.
const sources = "../.."

// TestImage does what the Dockerfile says, without Docker: it builds zkr by the
// Dockerfile's command from what .dockerignore leaves, and runs it in a
// directory that has nothing else, as the Dockerfile's user.
func TestImage(t *testing.T) {
	t.Parallel()
	instructions := dockerfile(t)
	image := buildImage(t, instructions)
	isStatic(t, filepath.Join(image.root, "zkr"))
	if _, err := image.run("version"); errors.Is(err, syscall.EPERM) {
		t.Logf("without the confinement of a container: %v", err)
		image.chroot = false
	}

	t.Run("zkr version", func(t *testing.T) {
		t.Parallel()
		if text, err := image.run("version"); err != nil || !strings.HasPrefix(text, "zkr ") {
			t.Errorf("it printed %q, %v", text, err)
		}
	})
	t.Run("zkr demo", func(t *testing.T) {
		t.Parallel()
		if text, err := image.run("demo"); err != nil || !strings.Contains(text, "nothing left behind: ok") {
			t.Errorf("it printed %q, %v", text, err)
		}
	})
	t.Run("certificates", func(t *testing.T) {
		t.Parallel()
		if !image.chroot {
			t.Skip("the root directory cannot be changed")
		}
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		authority, authorities := tlstest.NewAuthority(t), filepath.Join(dir, "authorities")
		authority.Write(authorities)
		pair := authority.Issue("ensemble.example", time.Hour)
		tlstest.WritePair(t, pair, cert, key)
		for from, to := range map[string]string{cert: "/cert", key: "/key", authorities: image.certificates} {
			text, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(image.root, to), text, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		front := tlstest.NewFront(t, testutil.Start(t).Servers(), &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: authority.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		})
		text, err := image.run("inspect", "--servers", front.Address, "--tls-cert", "/cert", "--tls-key", "/key", "--tls-server-name", "ensemble.example", "/path")
		if err != nil {
			t.Errorf("zkr does not trust the certificates at %s: %q, %v", image.certificates, text, err)
		}
	})
}

// dockerfile returns the instructions of the Dockerfile, a line each.
func dockerfile(t *testing.T) []string {
	t.Helper()
	var instructions []string
	for _, line := range lines(t, "Dockerfile") {
		if line != "" && !strings.HasPrefix(line, "#") {
			instructions = append(instructions, line)
		}
	}
	return instructions
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open(filepath.Join(sources, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []string
	for scan := bufio.NewScanner(file); scan.Scan(); {
		all = append(all, scan.Text())
	}
	return all
}

// image is what the last stage of the Dockerfile has.
type image struct {
	root         string
	certificates string // the file with the certificates, in root
	user         uint32
	chroot       bool // zkr sees nothing but root
}

// buildImage checks and executes the instructions. An instruction that it does
// not know fails the test.
func buildImage(t *testing.T, instructions []string) image {
	t.Helper()
	im := image{root: t.TempDir(), chroot: os.Geteuid() == 0}
	if err := os.Chmod(im.root, 0o755); err != nil {
		t.Fatal(err)
	}
	built, context := filepath.Join(t.TempDir(), "built"), t.TempDir()
	copySources(t, context)
	from := regexp.MustCompile(`^FROM golang:(\S+) AS build$`).FindStringSubmatch(instructions[0])
	if from == nil {
		t.Fatalf("the first instruction is %q", instructions[0])
	}
	for _, line := range lines(t, "go.mod") {
		if needs, ok := strings.CutPrefix(line, "go "); ok && version.Compare("go"+from[1], version.Lang("go"+needs)) < 0 {
			t.Errorf("the image has Go %s, and go.mod needs %s", from[1], needs)
		}
	}
	for i, instruction := range instructions[1:] {
		switch verb, rest, _ := strings.Cut(instruction, " "); {
		case verb == "RUN" && strings.Contains(rest, " build "):
			const out = "-o /out/zkr "
			if !strings.Contains(rest, out) {
				t.Fatalf("no %q in %q", out, rest)
			}
			cmd := exec.Command("sh", "-c", strings.Replace(rest, out, "-o '"+built+"' ", 1))
			cmd.Dir = context
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", rest, err, text)
			}
		case instruction == "COPY --from=build /out/zkr /zkr":
			if err := os.Rename(built, filepath.Join(im.root, "zkr")); err != nil {
				t.Fatal(err)
			}
		case instruction == "COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/":
			im.certificates = "/etc/ssl/certs/ca-certificates.crt"
			if err := os.MkdirAll(filepath.Join(im.root, filepath.Dir(im.certificates)), 0o755); err != nil {
				t.Fatal(err)
			}
		case instruction == "USER 65532:65532":
			im.user = 65532
		case slices.Contains([]string{"WORKDIR /src", "COPY go.mod go.sum ./", "COPY sasl/gssapi/go.mod sasl/gssapi/go.sum sasl/gssapi/go.work sasl/gssapi/", "RUN go -C sasl/gssapi mod download", "COPY . .", "FROM scratch", `ENTRYPOINT ["/zkr"]`}, instruction):
		default:
			t.Fatalf("instruction %d: this test does not know %q", 2+i, instruction)
		}
	}
	if im.certificates == "" || im.user == 0 || !slices.Contains(instructions, "FROM scratch") {
		t.Fatalf("%+v of %q", im, instructions)
	}
	return im
}

// copySources copies what .dockerignore leaves.
func copySources(t *testing.T, to string) {
	t.Helper()
	var roots, left []string
	for _, pattern := range lines(t, ".dockerignore") {
		switch {
		case pattern == "*", pattern == "", strings.HasPrefix(pattern, "#"):
		case strings.HasPrefix(pattern, "!"):
			roots = append(roots, pattern[1:])
		case strings.HasPrefix(pattern, "**/"):
			left = append(left, pattern[len("**/"):])
		default:
			t.Fatalf("this test does not know the pattern %q", pattern)
		}
	}
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(sources, root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			out := slices.ContainsFunc(left, func(pattern string) bool {
				matches, err := filepath.Match(pattern, entry.Name())
				return matches || err != nil
			})
			at := filepath.Join(to, strings.TrimPrefix(path, sources))
			switch {
			case out && entry.IsDir():
				return fs.SkipDir
			case out:
				return nil
			case entry.IsDir():
				return os.MkdirAll(at, 0o755)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(at, text, 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// isStatic: the kernel can run the program without a loader or a library.
func isStatic(t *testing.T, program string) {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has a part of type %v", program, part.Type)
		}
	}
}

// run runs zkr as the image does: without an environment, as the image's user.
// Without root's rights it only goes without an environment.
func (im image) run(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(im.root, "zkr"), args...)
	if im.chroot {
		cmd = exec.Command("/zkr", args...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: im.root, Credential: &syscall.Credential{Uid: im.user, Gid: im.user}}
	}
	cmd.Env = []string{}
	text, err := cmd.CombinedOutput()
	return string(text), err
}
