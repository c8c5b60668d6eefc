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

// loadSecrets reads the secrets' file, makes up what is missing, and returns
// the users with all their secrets and the key that signs tickets.
func loadSecrets(dir string, users []access.User) ([]access.User, []byte, error) {
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
	all := make([]access.User, 0, len(users)+1)
	root := false
	for _, u := range users {
		root = root || u.ID == access.Superuser
		all = append(all, u)
	}
	if !root {
		all = append(all, access.User{ID: access.Superuser})
	}
	for i := range all {
		u := &all[i]
		u.Password = secret(u.Password, k.Passwords, u.ID)
		tokens := make([]access.Token, len(u.Tokens))
		for j, t := range u.Tokens {
			t.Secret = secret(t.Secret, k.Tokens, u.ID+"!"+t.ID)
			tokens[j] = t
		}
		u.Tokens = tokens
	}
	out, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return nil, nil, fmt.Errorf("write secrets: %w", err)
	}
	if err := writeFile(path, out, 0o600); err != nil {
		return nil, nil, err
	}
	return all, []byte(k.SignKey), nil
}

// secret is the given one, else the kept one, else a new one. It stays in kept.
func secret(given access.Secret, kept map[string]string, name string) access.Secret {
	if given != "" {
		kept[name] = given.Reveal()
	}
	if kept[name] == "" {
		kept[name] = newUUID()
	}
	return access.Secret(kept[name])
}

// Credentials returns the secrets of all users, for whoever runs the server.
func (s *Server) Credentials() Credentials {
	c := Credentials{Passwords: map[string]access.Secret{}, Tokens: map[string]access.Secret{}}
	for _, u := range s.users {
		c.Passwords[u.ID] = u.Password
		for _, t := range u.Tokens {
			c.Tokens[u.ID+"!"+t.ID] = t.Secret
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
