package sshexec

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
)

// A machine that becomes a template runs savepoint's own text and no other: one
// of the steps of template.sh.
//
//go:embed template.sh
var templateScript string

// TemplateStep is what template.sh is told to do.
type TemplateStep = string

// The steps.
const (
	TemplateProvision      TemplateStep = "provision"       // installs what is missing and sets the guest up
	TemplateProvisionBtrfs TemplateStep = "provision-btrfs" // the same, with a btrfs as the workspace volume
	TemplateCheck          TemplateStep = "check"           // says what is there
	TemplateClean          TemplateStep = "clean"           // removes its identity; shut it down right after
)

// templateText is what the guest's shell reads.
var templateText = "workspace_files() {\n" +
	unpacked(WorkspacePath, 0o755, WorkspaceScript) +
	unpacked(WorkspaceUnitPath, 0o644, WorkspaceUnit) +
	unpacked(WorkspaceDropInPath, 0o644, WorkspaceDropIn) +
	"}\n" + templateScript

func unpacked(path string, mode int, text string) string {
	return fmt.Sprintf("\tunpack %s %o %s\n", path, mode, base64.StdEncoding.EncodeToString([]byte(text)))
}

// TemplateRecipe names everything that the steps do: it changes with their text.
func TemplateRecipe() string {
	sum := sha256.Sum256([]byte(templateText))
	return hex.EncodeToString(sum[:])[:16]
}

// TemplateCommand is the command line of a step; TemplateLength bytes of text
// follow on stdin. A simulated guest recognises it.
func TemplateCommand(step TemplateStep, workspace int64) string {
	c := "exec sh -s " + string(step)
	if workspace > 0 && step != TemplateClean {
		c += " " + strconv.FormatInt(workspace, 10)
	}
	return c
}

// TemplateLength is the length of the text.
func TemplateLength() int { return len(templateText) }

// FirstHostKey waits until the machine at the address lets root in with our
// identity, and returns the ed25519 host key that it showed. That it is the
// machine it should be is not known: until another channel has confirmed the
// key, nothing may be sent there that is secret, and nothing believed that it
// says. ErrUnavailable: it did not before ctx ended.
func (c *Client) FirstHostKey(ctx context.Context, address netip.Addr) (string, error) {
	var last error
	for {
		key, err := c.meet(ctx, address)
		if err == nil {
			return key, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		var jump *jumpError
		if errors.As(err, &jump) && hopeless(err) {
			return "", fmt.Errorf("meet the machine at %s: %w", address, last)
		}
		select {
		case <-time.After(c.cfg.RetryInterval):
		case <-ctx.Done():
			return "", fmt.Errorf("meet the machine at %s: %w: %w (%w); check that it boots, takes the address, and lets root in by key", address, orchestrator.ErrUnavailable, last, ctx.Err())
		}
	}
}

// meet connects once.
func (c *Client) meet(ctx context.Context, address netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	at := net.JoinHostPort(address.String(), strconv.Itoa(c.cfg.Port))
	raw, err := c.route(ctx, at)
	if err != nil {
		return "", err
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	spoken, err := greeted(ctx, raw)
	if err != nil {
		return "", err
	}
	signers := make([]ssh.Signer, len(c.cfg.Identities))
	for i, id := range c.cfg.Identities {
		signers[i] = id.signer
	}
	var shown ssh.PublicKey
	conn, chans, reqs, err := ssh.NewClientConn(spoken, at, &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519}, ClientVersion: "SSH-2.0-savepoint",
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error { shown = key; return nil },
	})
	if err != nil {
		return "", err
	}
	ssh.NewClient(conn, chans, reqs).Close()
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(shown))), nil
}

// Template carries out one step in a machine that becomes a template. workspace
// is the size of the disk for the workspace volume, 0 for none. Each line that
// the step prints is passed to say; the error holds what it complained about.
// A step may be repeated. sb needs an id, a name, an address and a host key.
func (c *Client) Template(ctx context.Context, sb orchestrator.Sandbox, step TemplateStep, workspace int64, say func(line string)) error {
	what := fmt.Sprintf("%s machine %s", step, sb.Name)
	l, err := c.dialGuest(ctx, sb)
	if err != nil {
		return fmt.Errorf("%s: %w", what, unreached("reach", sb, err))
	}
	defer l.close(errors.New("the step is over"))
	stop := context.AfterFunc(ctx, func() { l.close(ctx.Err()) })
	defer stop()
	s, err := l.client.NewSession()
	if err != nil {
		return fmt.Errorf("%s: %w: %w", what, orchestrator.ErrUnavailable, err)
	}
	var complaint tail
	s.Stdin, s.Stderr = strings.NewReader(templateText), &complaint
	lines := &lineWriter{say: say}
	s.Stdout = lines
	err = s.Run(TemplateCommand(step, workspace))
	lines.end()
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %w", what, orchestrator.ErrUnknownOutcome, ctx.Err())
	case errors.As(err, &exit):
		return fmt.Errorf("%s: %w: %s", what, orchestrator.ErrUnavailable, strings.Join(strings.Fields(complaint.String()), " "))
	}
	return fmt.Errorf("%s: %w: the connection was lost: %w", what, orchestrator.ErrUnknownOutcome, err)
}

// lineWriter passes whole lines on.
type lineWriter struct {
	buf bytes.Buffer
	say func(string)
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.buf.Write(p)
	for {
		line, err := w.buf.ReadString('\n')
		if err != nil {
			w.buf.WriteString(line[:min(len(line), 4<<10)])
			return len(p), nil
		}
		w.say(strings.TrimRight(line, "\r\n"))
	}
}

func (w *lineWriter) end() {
	if rest, _ := io.ReadAll(&w.buf); len(rest) > 0 {
		w.say(string(rest))
	}
}
