package transcripts_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

var update = flag.Bool("update", false, "write the files of testdata")

// Each scene is played again as its file has it, and there is no other file.
func TestTranscripts(t *testing.T) {
	defer random.None()()
	for _, scene := range scenes {
		t.Run(scene.file, func(t *testing.T) {
			var text string
			bubble.RunBelow(t, bubble.View{}, func(t *testing.T, w *bubble.World) {
				s := &stage{t, w, &tape{}}
				scene.play(s)
				text = scene.title + "\n\n" + strings.TrimSpace(scene.look) + "\n\n" + s.end()
			})
			compare(t, filepath.Join("testdata", scene.file+".txt"), text)
		})
	}
	if files, err := os.ReadDir("testdata"); err != nil || len(files) != len(scenes) {
		t.Errorf("%d scenes, %d files, %v", len(scenes), len(files), err)
	}
}

func compare(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != text {
		t.Errorf("%s has another text; -update writes what has happened now:\n%s", file, text)
	}
}

// What ARCHITECTURE.md quotes is in a transcript.
func TestQuote(t *testing.T) {
	page, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Transcripts\n")
	_, quote, _ := strings.Cut(section, "\n```\n")
	quote, _, found := strings.Cut(quote, "```\n")
	text, err := os.ReadFile("testdata/03-three-waiters.txt")
	if err != nil || !found || !strings.Contains(string(text), quote) {
		t.Errorf("no scene has this (%v):\n%s", err, quote)
	}
}
