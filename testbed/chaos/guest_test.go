package chaos

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// read reads the guest's files and what processes of commands are left, over
// an SSH connection of our own that accepts the pinned host key only. A guest
// that has just been started is given time.
func (w *world) read() (tree, []string, error) {
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := w.inGuest(scan)
		if err == nil {
			return parseScan(text)
		}
		select {
		case <-w.ctx.Done():
			return nil, nil, err
		case <-deadline.C:
			return nil, nil, fmt.Errorf("read the guest's files: %w", err)
		case <-tick.C:
		}
	}
}

// inGuest runs a shell text as root, past the relay.
func (w *world) inGuest(script string) (string, error) {
	signer, err := w.key("id_ed25519")
	if err != nil {
		return "", err
	}
	door, err := w.key("jump_host_key")
	if err != nil {
		return "", err
	}
	pinned, _, _, _, err := ssh.ParseAuthorizedKey([]byte(w.sandbox.HostKey))
	if err != nil {
		return "", fmt.Errorf("the sandbox's host key: %w", err)
	}
	raw, err := net.DialTimeout("tcp", w.status().JumpAddress, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(time.Minute)); err != nil { // for everything
		return "", err
	}
	hop, err := client(raw, "jump", signer, ssh.FixedHostKey(door.PublicKey()))
	if err != nil {
		return "", err
	}
	defer hop.Close()
	inner, err := hop.Dial("tcp", net.JoinHostPort(w.sandbox.Address.String(), "22"))
	if err != nil {
		return "", err
	}
	c, err := client(inner, "root", signer, ssh.FixedHostKey(pinned))
	if err != nil {
		return "", err
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		return "", err
	}
	defer s.Close()
	var out, errs bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader(script), &out, &errs
	if err := s.Run("sh -s"); err != nil {
		return "", fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), nil
}

// key reads one of the lab's private keys.
func (w *world) key(name string) (ssh.Signer, error) {
	text, err := os.ReadFile(filepath.Join(w.labDir(), name))
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(text)
}

func client(c net.Conn, name string, key ssh.Signer, check ssh.HostKeyCallback) (*ssh.Client, error) {
	conn, chans, reqs, err := ssh.NewClientConn(c, "guest", &ssh.ClientConfig{
		User: name, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: check,
	})
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return ssh.NewClient(conn, chans, reqs), nil
}
