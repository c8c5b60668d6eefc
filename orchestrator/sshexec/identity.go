package sshexec

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Identity is a private key that proves itself to servers. It prints as the
// fingerprint of its public half and has no way to show the private one. The
// zero value is not usable.
type Identity struct{ signer ssh.Signer }

// String returns the fingerprint.
func (i Identity) String() string {
	if i.signer == nil {
		return "no identity"
	}
	return ssh.FingerprintSHA256(i.signer.PublicKey())
}

// GoString is String, so that %#v shows no key.
func (i Identity) GoString() string { return i.String() }

// MarshalText is String, so that encoders show no key.
func (i Identity) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// AuthorizedKey returns the authorized_keys line that lets the identity in.
func (i Identity) AuthorizedKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(i.signer.PublicKey())))
}

// LoadIdentity reads an unencrypted private key in OpenSSH or PEM form. A file
// that others can read is refused, as ssh does.
func LoadIdentity(path string) (Identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Identity{}, fmt.Errorf("load identity: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Identity{}, fmt.Errorf("load identity %s: mode %04o lets others read it; chmod 600 it", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Identity{}, fmt.Errorf("load identity: %w", err)
	}
	s, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return Identity{}, fmt.Errorf("load identity %s: it has a passphrase; savepoint needs a key of its own without one", path)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("load identity %s: not a private key in OpenSSH or PEM form", path)
	}
	return Identity{s}, nil
}

// CreateIdentity makes an ed25519 key and writes it to path, mode 0600. It
// never replaces a file.
func CreateIdentity(path, comment string) (Identity, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Identity{}, fmt.Errorf("create identity %s: %w", path, err)
	}
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return Identity{}, fmt.Errorf("create identity %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Identity{}, fmt.Errorf("create identity: %w", err)
	}
	_, err = f.Write(pem.EncodeToMemory(block))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return Identity{}, errors.Join(fmt.Errorf("create identity %s: %w", path, err), os.Remove(path))
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return Identity{}, fmt.Errorf("create identity %s: %w", path, err)
	}
	return Identity{s}, nil
}

// parseHostKey reads one authorized_keys line without options.
func parseHostKey(line string) (ssh.PublicKey, error) {
	if strings.TrimSpace(line) == "" {
		return nil, errors.New("it is empty")
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(options) > 0 || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("it is not one line \"TYPE BASE64 [COMMENT]\"")
	}
	return key, nil
}

// algorithms returns what to offer so that the server shows this kind of key
// and no other.
func algorithms(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key.Type()}
}
