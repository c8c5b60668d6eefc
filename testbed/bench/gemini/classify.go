package gemini

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Class says what a run of the CLI came to.
type Class string

// The classes.
const (
	TrustScreen  Class = "trust-screen"     // asks on a terminal whether the directory is trusted
	SignInScreen Class = "sign-in-screen"   // asks on a terminal how to authenticate
	AuthRequired Class = "auth-required"    // ends and says that credentials are needed
	Untrusted    Class = "untrusted-folder" // ends because the directory is not trusted
	NoSandbox    Class = "no-sandbox"       // ends because the sandbox that it is to make cannot be made
	NoInput      Class = "no-input"
	TurnLimit    Class = "turn-limit"
	Unreachable  Class = "model-unreachable"
	ModelFailed  Class = "model-failed" // the server's answer is an error, or is cut
	Answered     Class = "answered"     // ends with an answer of the model
	Killed       Class = "killed"       // at the limit, without a text that is known
	Unknown      Class = "unknown"
)

// texts tell classes by what the CLI writes, most telling first. They are parts
// of messages of the pinned version.
var texts = []struct {
	class Class
	part  string
}{
	{TrustScreen, "Do you trust the files in this folder?"},
	{SignInScreen, "How would you like to authenticate for this project?"},
	{AuthRequired, "Please set an Auth method"},
	{AuthRequired, "Manual authorization is required"},
	{AuthRequired, "Invalid auth method selected"},
	{AuthRequired, "FatalAuthenticationError"},
	{AuthRequired, "When using Vertex AI, you must specify"},
	{NoSandbox, "FatalSandboxError"},
	{NoSandbox, "failed to determine command for sandbox"},
	{Untrusted, "not running in a trusted directory"},
	{NoInput, "No input provided via stdin"},
	{TurnLimit, "Reached max session turns"},
	{Unreachable, "fetch failed"},
	{ModelFailed, "Error when talking to Gemini API"},
	{ModelFailed, "Retrying with backoff"},
}

// asks reports whether one of the screens that wait for an answer is there.
func asks(screen string) bool {
	seen := plain(screen)
	for _, t := range texts {
		if (t.class == TrustScreen || t.class == SignInScreen) && strings.Contains(seen, t.part) {
			return true
		}
	}
	return false
}

// classify tells what a run came to by what it wrote, and returns the text that
// says so. The exit code decides nothing but the last resort: it is 0 for
// commands that fail and for tools that were denied.
func classify(r ran) (Class, string) {
	seen := plain(r.out + "\n" + r.diag)
	for _, t := range texts {
		if strings.Contains(seen, t.part) {
			return t.class, t.part
		}
	}
	switch {
	case r.killed:
		return Killed, ""
	case r.exit == 0:
		return Answered, ""
	}
	return Unknown, lastLines([]byte(r.out+"\n"+r.diag), 2)
}

var (
	escapes = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])`)
	frames  = regexp.MustCompile(`[\x{2500}-\x{259F}\s\x00-\x1f]+`)
)

// plain is what is on a terminal without colours, frames and line ends: a text
// that was broken to fit into a frame is one again.
func plain(screen string) string {
	return frames.ReplaceAllString(escapes.ReplaceAllString(screen, ""), " ")
}

// Tools counts what became of the tools that the model called, as the CLI's
// events have it.
type Tools struct {
	Called, Failed, Denied int
}

// tools reads the events of --output-format stream-json. Other lines are
// passed over.
func tools(out string) Tools {
	var t Tools
	for line := range strings.Lines(out) {
		var e struct {
			Type, Status string
			Error        struct{ Type string }
		}
		if json.Unmarshal([]byte(line), &e) != nil || e.Type != "tool_result" {
			continue
		}
		t.Called++
		switch {
		case e.Error.Type == "policy_violation":
			t.Denied++
		case e.Status != "success":
			t.Failed++
		}
	}
	return t
}
