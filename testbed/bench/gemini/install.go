package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Package and Version are what is installed. The version is pinned: what the
// CLI does without credentials, and in which words, changes between versions.
const (
	Package = "@google/gemini-cli"
	Version = "0.61.0"
)

// minNode is the oldest major version of Node.js that the CLI runs on.
const minNode = 20

// CLI is an installed Gemini CLI.
type CLI struct {
	Version     string
	Node        string // path of the program
	NodeVersion string
	Entry       string // the CLI's own file, for Node

	shipping sync.Mutex
	shipped  []byte // for guests; made when it is needed
	stamp    string
}

// MissingError says what the machine lacks for the baseline. An experiment that
// gets it is skipped and says so.
type MissingError struct {
	What string
	Err  error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the Gemini CLI baseline needs %s: %v", e.What, e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// installTime bounds npm; the package is 100 MB.
const installTime = 5 * time.Minute

// Install puts the CLI into cacheDir by npm, unless it is there, and returns it.
// Scripts of packages are not run. When the machine cannot do that the error is
// a *MissingError.
func Install(ctx context.Context, cacheDir string) (*CLI, error) {
	node, version, err := findNode(ctx)
	if err != nil {
		return nil, err
	}
	// Node resolves links, and the run sees the machine read-only at real paths.
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache of the Gemini CLI: %w", err)
	}
	cacheDir, err = filepath.Abs(cacheDir)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(cacheDir, "gemini-cli-"+Version)
	c := &CLI{Version: Version, Node: node, NodeVersion: version}
	if c.Entry, err = entry(home); err == nil {
		if guard, err := lockDir(cacheDir, 0); err == nil { // what cannot be removed takes room, no more
			_ = removeLeft(cacheDir)
			_ = guard.Close()
		}
		return c, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, &MissingError{"npm", err}
	}
	fresh, ours, err := claim(cacheDir)
	if err != nil {
		return nil, fmt.Errorf("make the cache of the Gemini CLI: %w", err)
	}
	defer ours.Close()
	defer os.RemoveAll(fresh)
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", fresh, "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact", Package+"@"+Version)
	cmd.WaitDelay = 5 * time.Second
	cmd.ExtraFiles = []*os.File{ours} // npm may outlive a process that is killed
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, &MissingError{Package + "@" + Version + " from npm", fmt.Errorf("%w: %s", err, lastLines(out, 5))}
	}
	if _, err := entry(fresh); err != nil {
		return nil, fmt.Errorf("npm installed %s, but: %w", Package, err)
	}
	// What is there under the final name is complete. A half one is replaced;
	// another installer that was faster wins.
	if _, err := entry(home); err != nil {
		if err := os.RemoveAll(home); err != nil {
			return nil, fmt.Errorf("replace an incomplete Gemini CLI: %w", err)
		}
		if err := os.Rename(fresh, home); err != nil {
			return nil, fmt.Errorf("keep the installed Gemini CLI: %w", err)
		}
	}
	c.Entry, err = entry(home)
	return c, err
}

// installing begins the names of directories that are installed into. Each is locked
// by who does so, until that process and its npm are gone.
const installing = "installing-"

// claim makes a directory to install into, after those of which the owner is gone were
// removed. It is the caller's until the file is closed.
func claim(cacheDir string) (string, *os.File, error) {
	// Nobody sweeps between the making of a directory and its lock.
	guard, err := lockDir(cacheDir, 0)
	if err != nil {
		return "", nil, err
	}
	defer guard.Close()
	if err := removeLeft(cacheDir); err != nil {
		return "", nil, err
	}
	fresh, err := os.MkdirTemp(cacheDir, installing)
	if err != nil {
		return "", nil, err
	}
	ours, err := lockDir(fresh, syscall.LOCK_NB)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(fresh))
	}
	return fresh, ours, nil
}

// removeLeft removes the directories of installers that are gone. The caller holds the
// cache's lock.
func removeLeft(cacheDir string) error {
	entries, err := os.ReadDir(cacheDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), installing) {
			continue
		}
		dir := filepath.Join(cacheDir, e.Name())
		gone, err := lockDir(dir, syscall.LOCK_NB)
		if err != nil {
			if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, fs.ErrNotExist) { // it is moved, or removed, by its owner
				errs = append(errs, err)
			}
			continue
		}
		errs = append(errs, os.RemoveAll(dir), gone.Close())
	}
	return errors.Join(errs...)
}

// lockDir locks a directory for as long as the file is open, in any process.
func lockDir(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|how); err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
		}
	}
}

// entry finds the CLI's file below an npm prefix and checks its version.
func entry(prefix string) (string, error) {
	dir := filepath.Join(prefix, "node_modules", filepath.FromSlash(Package))
	raw, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return "", err
	}
	var p struct {
		Version string
		Bin     map[string]string
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", fmt.Errorf("read the package of the Gemini CLI: %w", err)
	}
	if p.Version != Version || p.Bin["gemini"] == "" {
		return "", fmt.Errorf("the package is version %q with programs %v, want gemini of %s", p.Version, p.Bin, Version)
	}
	file := filepath.Join(dir, filepath.FromSlash(p.Bin["gemini"]))
	if _, err := os.Stat(file); err != nil {
		return "", err
	}
	return file, nil
}

func findNode(ctx context.Context) (path, version string, err error) {
	need := fmt.Sprintf("Node.js %d or newer", minNode)
	path, err = exec.LookPath("node")
	if err != nil {
		return "", "", &MissingError{need, err}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", &MissingError{need, err}
	}
	version = strings.TrimSpace(string(out))
	if !nodeEnough(version) {
		return "", "", &MissingError{need, fmt.Errorf("%s is %s", path, version)}
	}
	return path, version, nil
}

func nodeEnough(version string) bool {
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= minNode
}

func lastLines(out []byte, n int) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
