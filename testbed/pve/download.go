package pve

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"savepoint/testbed/pve/task"
)

// postDownload is POST /nodes/{node}/storage/{storage}/download-url: the node
// itself fetches a file. This one fetches from loopback addresses only.
func postDownload(c *call) (any, error) {
	s := c.s
	st, err := s.storage(c.p.Str("storage"))
	if err != nil {
		return nil, err
	}
	content := c.p.Str("content")
	name := reUnsafe.ReplaceAllString(filepath.Base(c.p.Str("filename")), "_")
	switch {
	case st.Type != "dir":
		return nil, fail("can't upload to storage type '%s', not a file based storage!", st.Type)
	case !st.has(content):
		return nil, fail("storage '%s' is not configured for content-type '%s'", st.ID, content)
	case !uploadNames[content].MatchString(name) || strings.HasPrefix(name, "."):
		return nil, badParam("filename", "wrong file extension")
	case c.p.Has("compression"):
		return nil, fail("decompression is not supported here")
	case c.p.Has("verify-certificates") && !c.p.Bool("verify-certificates"):
		return nil, fail("certificates are always verified here")
	}
	d := download{
		url: c.p.Str("url"), dest: filepath.Join(st.Path, contentDirs[content], name),
		algorithm: c.p.Str("checksum-algorithm"), checksum: c.p.Str("checksum"),
	}
	return s.startTask("download", name, c.who.name, func(w *task.Worker) error {
		if err := w.Step("download"); err != nil {
			return err
		}
		return s.download(w, d)
	})
}

// download is one file to be fetched.
type download struct {
	url, dest           string
	algorithm, checksum string // "" = not checked
}

// download fetches a file next to where it goes, checks it and renames it. A
// file that is there already is only checked.
func (s *Server) download(w *task.Worker, d download) error {
	w.Log("downloading %s to %s", d.url, d.dest)
	if _, err := os.Stat(d.dest); err == nil {
		if d.algorithm == "" {
			return fail("refusing to override existing file '%s'", d.dest)
		}
		if err := verify(d.dest, d.algorithm, d.checksum); err != nil {
			return fail("mismatch: file '%s' already exists: %w", d.dest, err)
		}
		w.Log("OK, got correct file already, no need to download")
		return nil
	}
	tmp, err := s.fetch(w.Context(), d)
	if err != nil {
		return fail("download failed: %w", err)
	}
	defer os.Remove(tmp)
	if d.algorithm != "" {
		if err := verify(tmp, d.algorithm, d.checksum); err != nil {
			return err
		}
		w.Log("OK, checksum verified")
	}
	if err := w.Step("downloaded"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.dest), 0o700); err != nil {
		return fail("download failed: %w", err)
	}
	if err := move(tmp, d.dest); err != nil {
		return fail("download failed: %w", err)
	}
	w.Log("download of '%s' to '%s' finished", d.url, d.dest)
	return nil
}

// fetch writes what the URL answers to a temporary file and returns its path.
func (s *Server) fetch(ctx context.Context, d download) (string, error) {
	dialer := net.Dialer{Control: onlyLoopback}
	tr := &http.Transport{
		DialContext:     dialer.DialContext,
		TLSClientConfig: &tls.Config{RootCAs: s.cfg.DownloadCAs},
	}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return "", err
	}
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", d.url, res.Status)
	}
	return s.saveUpload(res.Body)
}

// onlyLoopback refuses every other address, after its name was resolved and
// for each redirect anew: what runs in a lab reaches nobody else's network.
func onlyLoopback(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !at.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("this cluster fetches from loopback addresses only, and %s is none; upload the file instead", at.Addr())
	}
	return nil
}
