package proxmox

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/orchestrator"
)

const hostKeyFile = "/etc/ssh/ssh_host_ed25519_key.pub"

// HostKey reads the guest's SSH host key through the guest agent, which is a
// channel that no other guest can answer on, and returns it as "ssh-ed25519
// AAAA…" without a comment. It waits while the guest boots, its agent is not
// up or the key does not exist yet, for at most the agent timeout; then the
// error is ErrUnavailable. A template that carries a key of its own would give
// that key here until the first boot replaced it, so templates must have none.
func (c *Cluster) HostKey(ctx context.Context, vm orchestrator.VMRef) (string, error) {
	const op = "read the ssh host key of"
	if err := checkRef(op, vm); err != nil {
		return "", err
	}
	wait, cancel := context.WithTimeout(ctx, c.cfg.AgentTimeout)
	defer cancel()
	last := "not asked yet"
	for n := 0; ; n++ {
		var out struct {
			Content string `json:"content"`
		}
		err := c.get(wait, vmPath(vm)+"/agent/file-read", url.Values{"file": {hostKeyFile}}, &out)
		switch {
		case err == nil:
			key, kerr := parseHostKey(out.Content)
			if kerr == nil {
				return key, nil
			}
			last = kerr.Error()
		case neverAnswers(err):
			return "", c.explainAgent(ctx, op, vm, err)
		case wait.Err() == nil:
			if last = textOf(err); last == "" {
				last = err.Error()
			}
		}
		if pause(wait, max(backoff(n, c.cfg.PollInterval, 4*c.cfg.PollInterval), 1)) != nil {
			return "", &failure{op: op, subject: vm.String(), class: orchestrator.ErrUnavailable, err: ctx.Err(),
				cause: fmt.Sprintf("the guest agent did not give it in time (last answer: %s)", last),
				mend:  "check that the template has qemu-guest-agent and sshd and boots within the agent timeout"}
		}
	}
}

// neverAnswers reports whether waiting cannot help: wrong credentials, a
// missing privilege or VM, no agent in the configuration, an API that does not
// have the call.
func neverAnswers(err error) bool {
	if isIdentityError(err) || says(err, agentMissingRE) || says(err, configMissingRE) {
		return true
	}
	var api *pve.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest, http.StatusNotFound, http.StatusNotImplemented:
		return true
	}
	return false
}

func (c *Cluster) explainAgent(ctx context.Context, op string, vm orchestrator.VMRef, err error) error {
	if !says(err, agentMissingRE) {
		return c.explainVM(ctx, op, vm, err)
	}
	what, mend := "the vm runs without a guest agent channel", "set agent: 1 on the template; on a running vm it takes effect only after a stop and start"
	return &failure{op: op, subject: vm.String(), cause: what, mend: mend, class: &orchestrator.UnsupportedError{What: what, Mend: mend}, err: err}
}

const keyType = "ssh-ed25519"

// parseHostKey checks an OpenSSH public key line: type, then base64 of two
// length-prefixed fields, the type again and 32 bytes.
func parseHostKey(content string) (string, error) {
	line, rest, _ := strings.Cut(strings.TrimSpace(content), "\n")
	fields := strings.Fields(line)
	if len(fields) < 2 || rest != "" || fields[0] != keyType {
		return "", fmt.Errorf("%s holds no ssh-ed25519 key yet", hostKeyFile)
	}
	raw, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return "", fmt.Errorf("%s holds no whole key yet", hostKeyFile)
	}
	name, raw, ok := sshField(raw)
	key, raw, ok2 := sshField(raw)
	if !ok || !ok2 || len(raw) != 0 || string(name) != keyType || len(key) != 32 {
		return "", fmt.Errorf("%s holds no whole key yet", hostKeyFile)
	}
	return keyType + " " + fields[1], nil
}

// sshField cuts one uint32-length-prefixed field off b.
func sshField(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, false
	}
	return b[4 : 4+n], b[4+n:], true
}
