// Package browser drives Debian's chromium, without a screen, by the protocol
// of chromium-driver.
package browser

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// Browser is a window.
type Browser struct {
	t    testing.TB
	at   string // of its session at the driver
	http http.Client
}

// Size is what a window has room for, in pixels.
type Size struct{ Width, Height int }

// The sizes of a desk and a phone.
var (
	Wide  = Size{1280, 900}
	Phone = Size{390, 844}
)

// Open opens a window, light or dark. Where no chromium is installed it skips
// the test, or fails it if ZKR_BROWSER is set. The window closes with the test.
func Open(t testing.TB, size Size, dark bool) *Browser {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	driver, driverErr := exec.LookPath("chromedriver")
	if err := errors.Join(err, driverErr); err != nil {
		if os.Getenv("ZKR_BROWSER") != "" {
			t.Fatal(err)
		}
		t.Skip(err, ": apt-get install chromium chromium-driver")
	}
	port := freePort(t)
	cmd := exec.Command(driver, "--port="+strconv.Itoa(port), "--silent")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	b := &Browser{t: t, at: fmt.Sprintf("http://127.0.0.1:%d", port), http: http.Client{Timeout: time.Minute}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		answer, err := b.http.Get(b.at + "/status")
		if err == nil {
			answer.Body.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	args := []string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
		fmt.Sprintf("--window-size=%d,%d", size.Width, size.Height),
	}
	var session struct {
		ID string `json:"sessionId"`
	}
	b.do("POST", "/session", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"browserName": "chrome", "goog:chromeOptions": map[string]any{"args": args, "binary": chromium}, "goog:loggingPrefs": map[string]string{"browser": "ALL"},
	}}}, &session)
	b.at += "/session/" + session.ID
	t.Cleanup(func() { b.do("DELETE", "", nil, nil) })
	b.cdp("Emulation.setDeviceMetricsOverride", map[string]any{"width": size.Width, "height": size.Height, "deviceScaleFactor": 1, "mobile": size == Phone})
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	b.cdp("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	return b
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// Go opens an address.
func (b *Browser) Go(address string) {
	b.t.Helper()
	b.do("POST", "/url", map[string]string{"url": address}, nil)
}

// Run runs a script and stores what it returns in result, unless that is nil.
func (b *Browser) Run(result any, script string, args ...any) {
	b.t.Helper()
	if args == nil {
		args = []any{}
	}
	b.do("POST", "/execute/sync", map[string]any{"script": script, "args": args}, result)
}

// Text returns the text that a reader sees.
func (b *Browser) Text() (text string) {
	b.t.Helper()
	b.Run(&text, "return document.body.innerText")
	return text
}

// Await waits until a script returns true.
func (b *Browser) Await(what, script string, args ...any) {
	b.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var done bool
		if b.Run(&done, script, args...); done {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("not within two minutes: %s\n%s", what, b.Text())
		}
	}
}

// Press presses a key: a letter, or one of those below.
func (b *Browser) Press(key string) {
	b.t.Helper()
	press := []map[string]string{{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}}
	b.do("POST", "/actions", map[string]any{"actions": []any{map[string]any{"type": "key", "id": "keys", "actions": press}}}, nil)
}

// Keys without a letter.
const (
	Tab   = "\ue004"
	Enter = "\ue007"
)

// History returns the addresses to which the keys for back and forward lead.
func (b *Browser) History() (all []string) {
	b.t.Helper()
	var history struct{ Entries []struct{ URL string } }
	b.cdpInto("Page.getNavigationHistory", map[string]any{}, &history)
	for _, entry := range history.Entries {
		all = append(all, entry.URL)
	}
	return all
}

// Hide opens another tab before this one, until show is called.
func (b *Browser) Hide() (show func()) {
	b.t.Helper()
	var here string
	b.do("GET", "/window", nil, &here)
	var other struct{ Handle string }
	b.do("POST", "/window/new", map[string]string{"type": "tab"}, &other)
	b.do("POST", "/window", map[string]string{"handle": other.Handle}, nil)
	return func() {
		b.t.Helper()
		b.do("DELETE", "/window", nil, nil)
		b.do("POST", "/window", map[string]string{"handle": here}, nil)
		b.cdp("Page.bringToFront", map[string]any{})
	}
}

// Told is what a screen reader is told of an element.
type Told struct{ Role, Name string }

// Told returns that of all elements, in order.
func (b *Browser) Told() (all []Told) {
	b.t.Helper()
	type value struct{ Value any }
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
		}
	}
	b.cdpInto("Accessibility.getFullAXTree", map[string]any{}, &tree)
	for _, node := range tree.Nodes {
		if !node.Ignored {
			all = append(all, Told{fmt.Sprint(node.Role.Value), fmt.Sprint(node.Name.Value)})
		}
	}
	return all
}

// Picture returns the whole page as a PNG.
func (b *Browser) Picture() []byte {
	b.t.Helper()
	var picture struct{ Data string }
	b.cdpInto("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &picture)
	png, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// Complaints returns what the browser has written into its log: errors of
// scripts, and what a policy has forbidden.
func (b *Browser) Complaints() []string {
	b.t.Helper()
	var entries []struct{ Message string }
	b.do("POST", "/se/log", map[string]string{"type": "browser"}, &entries)
	var all []string
	for _, e := range entries {
		all = append(all, e.Message)
	}
	return all
}

func (b *Browser) cdp(command string, params map[string]any) { b.cdpInto(command, params, nil) }

func (b *Browser) cdpInto(command string, params map[string]any, result any) {
	b.t.Helper()
	b.do("POST", "/goog/cdp/execute", map[string]any{"cmd": command, "params": params}, result)
}

// do sends a command to the driver.
func (b *Browser) do(method, path string, body, result any) {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	if body == nil {
		text = nil
	}
	request, err := http.NewRequest(method, b.at+path, bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	answer, err := b.http.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s: %s %s, %v", method, path, answer.Status, text, err)
	}
	var value struct{ Value json.RawMessage }
	if err := json.Unmarshal(text, &value); err != nil {
		b.t.Fatal(err)
	}
	if result != nil {
		if err := json.Unmarshal(value.Value, result); err != nil {
			b.t.Fatal(err)
		}
	}
}
