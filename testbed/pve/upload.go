package pve

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"mime/multipart"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"savepoint/testbed/pve/task"
)

// uploadPart is the name of the part that holds the file.
const uploadPart = "filename"

// receiveUpload reads a multipart body into parameters and a temporary file,
// whose path becomes the parameter tmpfilename.
func (c *call) receiveUpload() error {
	kind, attrs, err := mime.ParseMediaType(c.http.Header["content-type"])
	if err != nil || kind != "multipart/form-data" {
		return nil // an ordinary body: the schema will miss the file
	}
	parts := multipart.NewReader(c.http.Body(), attrs["boundary"])
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fail("upload failed: %w", err)
		}
		if part.FormName() != uploadPart || part.FileName() == "" {
			value, err := io.ReadAll(io.LimitReader(part, maxBody))
			if err != nil {
				return fail("upload failed: %w", err)
			}
			c.p[part.FormName()] = string(value)
			continue
		}
		c.p[uploadPart] = part.FileName()
		if c.upload != "" {
			os.Remove(c.upload) // a second file takes the place of the first
			c.upload = ""
		}
		tmp, err := c.s.saveUpload(part)
		if err != nil {
			return err
		}
		c.upload = tmp
	}
}

// uploadDir is where uploads are until their task moves them.
func uploadDir(dir string) string { return filepath.Join(dir, "uploads") }

// saveUpload writes an upload next to where it will go, under a name of its own.
func (s *Server) saveUpload(r io.Reader) (string, error) {
	dir := uploadDir(s.cfg.Dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fail("upload failed: %w", err)
	}
	f, err := os.CreateTemp(dir, "pveupload-")
	if err != nil {
		return "", fail("upload failed: %w", err)
	}
	_, err = io.Copy(f, r)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(f.Name())
		return "", fail("upload failed: %w", err)
	}
	return f.Name(), nil
}

// uploadNames are the file names that each kind of content takes.
var uploadNames = map[string]*regexp.Regexp{
	"iso":    regexp.MustCompile(`(?i)^[^/]+\.(iso|img)$`),
	"vztmpl": regexp.MustCompile(`^[^/]+\.tar\.(gz|xz|zst)$`),
	"import": regexp.MustCompile(`^[a-zA-Z0-9_.+-]+\.(ova|qcow2|raw|vmdk)$`),
}

var reUnsafe = regexp.MustCompile(`[^-a-zA-Z0-9_.+]`)

// postUpload is POST /nodes/{node}/storage/{storage}/upload.
func postUpload(c *call) (any, error) {
	s, tmp := c.s, c.upload
	st, err := s.storage(c.p.Str("storage"))
	if err != nil {
		return nil, err
	}
	content := c.p.Str("content")
	name := reUnsafe.ReplaceAllString(filepath.Base(c.p.Str("filename")), "_")
	switch {
	case tmp == "":
		return nil, badParam("tmpfilename", "missing temporary upload file")
	case !st.has(content):
		return nil, fail("storage '%s' does not support '%s' content", st.ID, content)
	case !uploadNames[content].MatchString(name) || strings.HasPrefix(name, "."):
		return nil, badParam("filename", "wrong file extension")
	}
	if algorithm := c.p.Str("checksum-algorithm"); algorithm != "" {
		if err := verify(tmp, algorithm, c.p.Str("checksum")); err != nil {
			return nil, err
		}
	}
	dest := filepath.Join(st.Path, contentDirs[content], name)
	if err := os.MkdirAll(filepath.Dir(dest), 0o700); err != nil {
		return nil, fail("upload failed: %w", err)
	}
	upid, err := s.startTask("imgcopy", "", c.who.name, func(w *task.Worker) error {
		if err := w.Step("copy"); err != nil {
			os.Remove(tmp)
			return err
		}
		w.Log("starting file import from: %s", tmp)
		w.Log("target file: %s", dest)
		if err := move(tmp, dest); err != nil {
			return fail("import failed: %w", err)
		}
		w.Log("finished file import successfully")
		return nil
	})
	if err == nil {
		c.upload = "" // the task's now
	}
	return upid, err
}

// move renames a file, or copies it where the storage is on another file system.
func move(from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	defer os.Remove(from)
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to + ".part")
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(to + ".part")
		return err
	}
	return os.Rename(to+".part", to)
}

// verify compares a file with its checksum.
func verify(path, algorithm, want string) error {
	var h hash.Hash
	switch algorithm {
	case "md5":
		h = md5.New()
	case "sha1":
		h = sha1.New()
	case "sha224":
		h = sha256.New224()
	case "sha256":
		h = sha256.New()
	case "sha384":
		h = sha512.New384()
	case "sha512":
		h = sha512.New()
	}
	f, err := os.Open(path)
	if err != nil {
		return fail("upload failed: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return fail("upload failed: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, want) {
		return fmt.Errorf("checksum mismatch: got '%s' != expect '%s'", got, want)
	}
	return nil
}
