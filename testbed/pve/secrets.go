package pve

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"savepoint/testbed/pve/access"
)

// Credentials are the secrets of the server's users.
type Credentials struct {
	// Passwords by user ("root@pam").
	Passwords map[string]access.Secret
	// Tokens by full name ("savepoint@pve!cli").
	Tokens map[string]access.Secret
}

// kept is the form of the secrets in their file.
type kept struct {
	Passwords map[string]string `json:"passwords"`
	Tokens    map[string]string `json:"tokens"`
	SignKey   string            `json:"sign_key"`
}

// loadSecrets reads the secrets' file, makes up what is missing for the users,
// and returns how to look a secret up and the key that signs tickets.
func loadSecrets(dir string, users []access.User) (made func(name string) access.Secret, key []byte, err error) {
	path := filepath.Join(dir, "secrets.json")
	k := kept{Passwords: map[string]string{}, Tokens: map[string]string{}}
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &k); err != nil {
			return nil, nil, fmt.Errorf("read secrets %s: %w; remove the file to make new ones", path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("read secrets: %w", err)
	}
	if k.SignKey == "" {
		k.SignKey = randomHex(32)
	}
	k.complete(access.User{ID: access.Superuser})
	for _, u := range users {
		k.complete(u)
	}
	out, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return nil, nil, fmt.Errorf("write secrets: %w", err)
	}
	if err := writeFile(path, out, 0o600); err != nil {
		return nil, nil, err
	}
	return func(name string) access.Secret {
		if strings.Contains(name, "!") {
			return access.Secret(k.Tokens[name])
		}
		return access.Secret(k.Passwords[name])
	}, []byte(k.SignKey), nil
}

// complete makes sure that all of a user's secrets are there: the given ones,
// else the kept ones, else new ones.
func (k kept) complete(u access.User) {
	one := func(list map[string]string, name string, given access.Secret) {
		if given != "" {
			list[name] = given.Reveal()
		}
		if list[name] == "" {
			list[name] = newUUID()
		}
	}
	one(k.Passwords, u.ID, u.Password)
	for _, t := range u.Tokens {
		one(k.Tokens, u.ID+"!"+t.ID, t.Secret)
	}
}

// Credentials returns the secrets of all users, for whoever runs the server.
func (s *Server) Credentials() Credentials {
	c := Credentials{Passwords: map[string]access.Secret{}, Tokens: map[string]access.Secret{}}
	for id, u := range s.access.State().Users {
		c.Passwords[id] = u.Password
		for _, t := range u.Tokens {
			c.Tokens[id+"!"+t.ID] = t.Secret
		}
	}
	return c
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// newUUID makes a random UUID.
func newUUID() string {
	b := make([]byte, 16)
	rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// writeFile replaces a file whole.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readState reads what writeState wrote; without a file v stays as it is.
func readState(path, what string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s %s: %w", what, path, err)
	}
	return nil
}

// writeState replaces the file of one part of the cluster's state.
func writeState(path, what string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return writeFile(path, b, 0o600)
}
