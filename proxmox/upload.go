package proxmox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"

	pve "github.com/luthermonson/go-proxmox"
)

// progressReader tells how much of a stream was read.
type progressReader struct {
	r           io.Reader
	stage       string
	done, total int64
	report      func(stage string, done, total int64)
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.done += int64(n)
	p.report(p.stage, p.done, p.total)
	return n, err
}

// uploadImage brings the image to the import storage under a name made from
// its hash and returns its volume id. An image that is there with the right
// size is not sent again. The cluster checks the hash before it takes the file.
func (c *Cluster) uploadImage(ctx context.Context, op, subject string, spec TemplateSpec, img image) (string, error) {
	storage, err := c.importStorage(ctx, op, subject, spec)
	if err != nil {
		return "", err
	}
	name := imageName(img.sha256, "qcow2")
	volid := storage + ":import/" + name
	there, err := c.uploaded(ctx, spec.Node, storage, volid, img.size)
	if err != nil {
		return "", explain(op, subject, err, false)
	}
	if there {
		return volid, nil
	}
	err = c.carryOut(ctx, order{
		op: op, subject: subject, node: spec.Node, kind: "imgcopy", timeout: c.cfg.CloneTimeout, started: spec.Started,
		send: func(ctx context.Context) (string, error) {
			return c.upload(ctx, nodePath(spec.Node)+"/storage/"+url.PathEscape(storage)+"/upload", name, spec, img)
		},
	})
	if err != nil {
		return "", err
	}
	err = c.verify(ctx, op, subject, func(ctx context.Context) (string, error) {
		there, err := c.uploaded(ctx, spec.Node, storage, volid, img.size)
		if err != nil {
			return "", explain(op, subject, err, false)
		}
		if !there {
			return volid + " is not listed with its size", nil
		}
		return "", nil
	})
	return volid, err
}

// upload streams the file as multipart/form-data with a known length: the API
// takes no chunked bodies, and reads the fields only in this order. The
// library's upload cannot be cancelled and would hold the image in memory.
func (c *Cluster) upload(ctx context.Context, path, name string, spec TemplateSpec, img image) (string, error) {
	if _, err := img.file.Seek(0, io.SeekStart); err != nil {
		return "", &transportError{method: http.MethodPost, err: err}
	}
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	for _, f := range [][2]string{{"content", "import"}, {"checksum-algorithm", "sha256"}, {"checksum", img.sha256}} {
		if err := form.WriteField(f[0], f[1]); err != nil {
			return "", err
		}
	}
	if _, err := form.CreateFormFile("filename", name); err != nil {
		return "", err
	}
	headLen := head.Len()
	if err := form.Close(); err != nil {
		return "", err
	}
	whole := head.Bytes()
	body := io.MultiReader(
		bytes.NewReader(whole[:headLen]),
		&progressReader{r: io.LimitReader(img.file, img.size), stage: "upload", total: img.size, report: spec.Progress},
		bytes.NewReader(whole[headLen:]))

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, io.NopCloser(body))
	if err != nil {
		return "", err
	}
	req.ContentLength = int64(len(whole)) + img.size
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", agentName)
	if err := c.auth.authorize(req); err != nil {
		return "", err
	}
	res, err := c.streams.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return "", &transportError{method: http.MethodPost, sent: true, err: err}
	}
	var answer struct {
		Data    string            `json:"data"`
		Message string            `json:"message"`
		Errors  map[string]string `json:"errors"`
	}
	jerr := json.Unmarshal(text, &answer)
	if res.StatusCode < 200 || res.StatusCode > 299 {
		if answer.Message == "" {
			answer.Message = res.Status
		}
		return "", &pve.APIError{StatusCode: res.StatusCode, Status: res.Status, Message: answer.Message, Errors: answer.Errors, Method: req.Method, Path: req.URL.Path}
	}
	if jerr != nil {
		return "", &transportError{method: http.MethodPost, sent: true, err: fmt.Errorf("answer to the upload: %w", jerr)}
	}
	return answer.Data, nil
}
