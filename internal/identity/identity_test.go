package identity

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestEveryForm: what is read of each form of a contender's data, and what asks
// its owner to release.
func TestEveryForm(t *testing.T) {
	type says struct {
		own    string
		asked  bool
		host   string
		parent int64
	}
	const plain = "__REVOKE__"
	kept := func(data string) string { return plain + " " + data }
	for data, want := range map[string]struct {
		says
		request string
	}{
		// What this package writes.
		"web-1 pid 4711":                              {says{"web-1 pid 4711", false, "web-1", 0}, kept("web-1 pid 4711")},
		"web-1 pid 4711: sh":                          {says{"web-1 pid 4711: sh", false, "web-1", 0}, kept("web-1 pid 4711: sh")},
		"web-1 pid 4711: sh parent=0x1":               {says{"web-1 pid 4711: sh parent=0x1", false, "web-1", 1}, kept("web-1 pid 4711: sh parent=0x1")},
		"__REVOKE__":                                  {says{"", true, "", 0}, plain},
		"__REVOKE__ web-1 pid 4711":                   {says{"web-1 pid 4711", true, "web-1", 0}, "__REVOKE__ web-1 pid 4711"},
		"__REVOKE__ web-1 pid 4711: sh":               {says{"web-1 pid 4711: sh", true, "web-1", 0}, "__REVOKE__ web-1 pid 4711: sh"},
		"__REVOKE__ web-1 pid 4711: sh parent=0x1":    {says{"web-1 pid 4711: sh parent=0x1", true, "web-1", 1}, "__REVOKE__ web-1 pid 4711: sh parent=0x1"},
		"a:b pid 1: two words: x parent=0x1":          {says{"a:b pid 1: two words: x parent=0x1", false, "a:b", 1}, kept("a:b pid 1: two words: x parent=0x1")},
		"a pid 1: b parent=0x2 parent=0x1":            {says{"a pid 1: b parent=0x2 parent=0x1", false, "a", 1}, kept("a pid 1: b parent=0x2 parent=0x1")},
		"a pid 1: sh parent=0x100a2b3c4d50001":        {says{"a pid 1: sh parent=0x100a2b3c4d50001", false, "a", 0x100a2b3c4d50001}, kept("a pid 1: sh parent=0x100a2b3c4d50001")},
		"a pid 1: sh parent=0xfffffffffffffffe":       {says{"a pid 1: sh parent=0xfffffffffffffffe", false, "a", -2}, kept("a pid 1: sh parent=0xfffffffffffffffe")},
		"a pid 1: sh parent=1":                        {says{"a pid 1: sh parent=1", false, "a", 0}, kept("a pid 1: sh parent=1")},
		"a pid 1: sh parent=0x":                       {says{"a pid 1: sh parent=0x", false, "a", 0}, kept("a pid 1: sh parent=0x")},
		"a pid 1: sh parent=0x0":                      {says{"a pid 1: sh parent=0x0", false, "a", 0}, kept("a pid 1: sh parent=0x0")},
		"a pid 1: sh parent=0x01":                     {says{"a pid 1: sh parent=0x01", false, "a", 0}, kept("a pid 1: sh parent=0x01")},
		"a pid 1: sh parent=0xA":                      {says{"a pid 1: sh parent=0xA", false, "a", 0}, kept("a pid 1: sh parent=0xA")},
		"a pid 1: sh parent=0x11111111111111111":      {says{"a pid 1: sh parent=0x11111111111111111", false, "a", 0}, kept("a pid 1: sh parent=0x11111111111111111")},
		"a pid 1: sh parent=0x1 ":                     {says{"a pid 1: sh parent=0x1 ", false, "a", 0}, kept("a pid 1: sh parent=0x1 ")},
		"a pid 1: sh parent=0x1\n":                    {says{"a pid 1: sh parent=0x1\n", false, "a", 0}, kept("a pid 1: sh parent=0x1\n")},
		"a pid 1: sh\nx parent=0x1":                   {says{"a pid 1: sh\nx parent=0x1", false, "a", 0}, kept("a pid 1: sh\nx parent=0x1")},
		"a pid 1: sh parent=0x1 parent=0x1, and now":  {says{"a pid 1: sh parent=0x1 parent=0x1, and now", false, "a", 0}, kept("a pid 1: sh parent=0x1 parent=0x1, and now")},
		"a pid 1:  parent=0x1":                        {says{"a pid 1:  parent=0x1", false, "a", 0}, kept("a pid 1:  parent=0x1")},
		"__REVOKE__ a pid 1: __REVOKE__ parent=0x1":   {says{"a pid 1: __REVOKE__ parent=0x1", true, "a", 1}, "__REVOKE__ a pid 1: __REVOKE__ parent=0x1"},
		"a pid 18446744073709551616: sh":              {says{"a pid 18446744073709551616: sh", false, "a", 0}, kept("a pid 18446744073709551616: sh")},
		"":                                            {says{"", false, "", 0}, plain},
		"10.0.0.1":                                    {says{"10.0.0.1", false, "", 0}, plain}, // Curator's
		"__REVOKE__ please, for the backup":           {says{"please, for the backup", true, "", 0}, "__REVOKE__ please, for the backup"},
		"__REVOKE__ ":                                 {says{"", true, "", 0}, "__REVOKE__ "},
		"__REVOKE__  web-1 pid 4711":                  {says{" web-1 pid 4711", true, "", 0}, "__REVOKE__  web-1 pid 4711"},
		"__REVOKE__, please":                          {says{"__REVOKE__, please", false, "", 0}, plain},
		"__REVOKED__":                                 {says{"__REVOKED__", false, "", 0}, plain},
		" __REVOKE__":                                 {says{" __REVOKE__", false, "", 0}, plain},
		"web-1 pid 4711 parent=0x1":                   {says{"web-1 pid 4711 parent=0x1", false, "", 0}, plain},
		"web-1 pid 4711, the second":                  {says{"web-1 pid 4711, the second", false, "", 0}, plain},
		"web-1: sh parent=0x1":                        {says{"web-1: sh parent=0x1", false, "", 0}, plain},
		" pid 4711: sh parent=0x1":                    {says{" pid 4711: sh parent=0x1", false, "", 0}, plain},
		"pid 4711: sh parent=0x1":                     {says{"pid 4711: sh parent=0x1", false, "", 0}, plain},
		"web 1 pid 4711: sh parent=0x1":               {says{"web 1 pid 4711: sh parent=0x1", false, "", 0}, plain},
		"web-1 pid 04711: sh parent=0x1":              {says{"web-1 pid 04711: sh parent=0x1", false, "", 0}, plain},
		"web-1 pid : sh parent=0x1":                   {says{"web-1 pid : sh parent=0x1", false, "", 0}, plain},
		"web-1 pid 4711\n":                            {says{"web-1 pid 4711\n", false, "", 0}, plain},
		"shop pid 7 pid 8: sh parent=0x1":             {says{"shop pid 7 pid 8: sh parent=0x1", false, "", 0}, plain},
		strings.Repeat(" parent=0x1", 100_000) + "\n": {says{strings.Repeat(" parent=0x1", 100_000) + "\n", false, "", 0}, plain},
	} {
		id := Parse([]byte(data))
		if got := (says{string(id.Own), id.Asked, id.Host, id.Parent}); got != want.says {
			t.Errorf("%.99q: got %.99v, want %.99v", data, got, want.says)
		}
		if IsRequest([]byte(data)) != want.asked {
			t.Errorf("%.99q: IsRequest is %v", data, !want.asked)
		}
		request := Request([]byte(data))
		if string(request) != want.request {
			t.Errorf("%.99q: asked by %.99q, want %.99q", data, request, want.request)
		}
		if !IsRequest(request) || !bytes.Equal(Request(request), request) {
			t.Errorf("%.99q: %.99q is not a request, or a second one would change it", data, request)
		}
	}
}

// TestWrittenAndRead: what this package writes it reads, before and after a
// request, whatever the command is called.
func TestWrittenAndRead(t *testing.T) {
	host, _, _ := strings.Cut(Process(), " ")
	if want := fmt.Sprintf("%s pid %d", host, os.Getpid()); Process() != want {
		t.Errorf("%q, want %q", Process(), want)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(
			rapid.StringN(1, -1, -1),
			rapid.SampledFrom([]string{"sh", "two words", "a\nb", "a: b", "x parent=0x1", "\xff parent=0x", "__REVOKE__", "\u2028"}),
		).Draw(t, "name")
		parent := rapid.Int64().Draw(t, "parent")
		data := OfCommand(name, parent)
		if !utf8.Valid(data) || bytes.ContainsFunc(data, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q is not one line of text", data)
		}
		for _, text := range [][]byte{data, Request(data)} {
			if id := Parse(text); id.Host != host || id.Parent != parent || string(id.Own) != string(data) {
				t.Fatalf("%q: %+v, want the parent %x", text, id, parent)
			}
		}
	})
}
