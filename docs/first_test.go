package docs

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// README's first program with a wrong address says so, though nobody has given
// it a logger of their own. How soon, is tested in virtual time.
func TestFirstProgramSaysThatItsAddressIsWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	servers := regexp.MustCompile(`framework\.New\("[^"/]*`)
	code := servers.ReplaceAllString(snippets(string(text))[0].code, `framework.New("`+refused)
	if !strings.Contains(code, refused) {
		t.Fatalf("no servers in %s", code)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if out, err := exec.Command("go", "build", "-o", program, filepath.Join(dir, "main.go")).CombinedOutput(); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program) // which kills it
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "not connected") || !strings.Contains(line, refused) || !strings.Contains(line, "refused") {
		t.Errorf("it says %q, %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
