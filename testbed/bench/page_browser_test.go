package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// browser is a headless Chromium that is driven over two pipes by its own
// protocol: JSON messages that end with a zero byte. It knows no name of the
// network and asks nothing of it.
type browser struct {
	out     *os.File
	in      *bufio.Reader
	session string
	id      int
	events  []message
}

// message is an answer (with the id of its call) or an event (with a method).
type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// browserTime bounds a browser's whole life: far above the seconds it takes.
const browserTime = 3 * time.Minute

// openBrowser starts Chromium with one empty tab, and ends it with the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: the page is not looked at (testbed/setup/packages.txt names the package)")
	}
	args := []string{
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + t.TempDir(),
		"--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
		"--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND", "about:blank",
	}
	if os.Geteuid() == 0 {
		args = append([]string{"--no-sandbox"}, args...) // it refuses to start as root with one
	}
	toIn, toOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromIn, fromOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// The test's own context ends before its cleanup, which closes the browser.
	ctx, cancel := context.WithTimeout(context.Background(), browserTime)
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.ExtraFiles = []*os.File{toIn, fromOut} // as its files 3 and 4
	cmd.Stderr, cmd.WaitDelay = &said, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toIn.Close()
	fromOut.Close()
	b := &browser{out: toOut, in: bufio.NewReader(fromIn)}
	for _, f := range []*os.File{toOut, fromIn} {
		if err := f.SetDeadline(time.Now().Add(browserTime)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		opened := b.session != ""
		b.session = ""                        // closing is for the browser, not for its tab
		_ = b.call("Browser.close", nil, nil) // it may be gone already
		toOut.Close()
		fromIn.Close()
		_ = cmd.Wait()
		cancel()
		if !opened && t.Failed() {
			t.Logf("the browser said:\n%s", said.Bytes())
		}
	})
	var made struct{ TargetID, SessionID string }
	b.must(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	b.must(t, "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	b.session = made.SessionID
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		b.must(t, domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) must(t *testing.T, method string, params, result any) {
	t.Helper()
	if err := b.call(method, params, result); err != nil {
		t.Fatal(err)
	}
}

// call sends one command and reads on until it is answered.
func (b *browser) call(method string, params, result any) error {
	b.id++
	if params == nil {
		params = struct{}{}
	}
	m := map[string]any{"id": b.id, "method": method, "params": params}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := b.out.Write(append(raw, 0)); err != nil {
		return fmt.Errorf("browser: send %s: %w", method, err)
	}
	for {
		m, err := b.read()
		switch {
		case err != nil:
			return fmt.Errorf("browser: wait for the answer to %s: %w", method, err)
		case m.ID != b.id:
			continue
		case m.Error != nil:
			return fmt.Errorf("browser: %s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	}
}

// read reads one message, and keeps it if it is an event.
func (b *browser) read() (message, error) {
	raw, err := b.in.ReadBytes(0)
	if err != nil {
		return message{}, err
	}
	var m message
	if err := json.Unmarshal(bytes.TrimSuffix(raw, []byte{0}), &m); err != nil {
		return message{}, err
	}
	if m.Method != "" {
		b.events = append(b.events, m)
	}
	return m, nil
}

// open shows a page as a screen of that width and colour scheme does, and waits
// until it is loaded.
func (b *browser) open(t *testing.T, url string, width int, scheme string) {
	t.Helper()
	b.must(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.must(t, "Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.events = nil
	var went struct{ ErrorText string }
	b.must(t, "Page.navigate", map[string]any{"url": url}, &went)
	if went.ErrorText != "" {
		t.Fatalf("open %s: %s", url, went.ErrorText)
	}
	for !slices.ContainsFunc(b.events, func(m message) bool { return m.Method == "Page.loadEventFired" }) {
		if _, err := b.read(); err != nil {
			t.Fatalf("open %s: %v", url, err)
		}
	}
}

// eval runs JavaScript in the page; what it returns is decoded into result.
func (b *browser) eval(t *testing.T, js string, result any) {
	t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.must(t, "Runtime.evaluate", map[string]any{"expression": js, "returnByValue": true}, &got)
	if got.ExceptionDetails != nil {
		t.Fatalf("evaluate: %s", got.ExceptionDetails)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(got.Result.Value, result); err != nil {
		t.Fatal(errors.Join(err, fmt.Errorf("of %q", got.Result.Value)))
	}
}

// tallest is how high one surface can be: a longer page is cut off there.
const tallest = 16000

// screenshot is the whole page as PNG.
func (b *browser) screenshot(t *testing.T, width, height int) []byte {
	t.Helper()
	var shot struct{ Data []byte }
	b.must(t, "Page.captureScreenshot", map[string]any{
		"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": min(height, tallest), "scale": 1},
	}, &shot)
	return shot.Data
}

// requests are the addresses that the page asked for since it was opened, and
// complaints what the browser said of it: a blocked style, an error.
func (b *browser) requests(t *testing.T) (asked, complaints []string) {
	t.Helper()
	for _, m := range b.events {
		var p struct {
			Request struct{ URL string }
			Entry   struct{ Level, Text string }
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatalf("browser: event %s: %v", m.Method, err)
		}
		switch m.Method {
		case "Network.requestWillBeSent":
			asked = append(asked, p.Request.URL)
		case "Log.entryAdded":
			complaints = append(complaints, p.Entry.Level+": "+p.Entry.Text)
		case "Runtime.exceptionThrown":
			complaints = append(complaints, string(m.Params))
		}
	}
	return asked, complaints
}
