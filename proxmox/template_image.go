package proxmox

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// source is where the content of a new disk comes from.
type source struct {
	id    string // names the content
	bring func(ctx context.Context) (volid string, err error)
	file  *os.File
}

func (s source) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

// rootImage is the source of the root disk.
func (b *building) rootImage(ctx context.Context) (source, error) {
	switch s := b.spec; {
	case s.ImageURL != "":
		return source{id: s.ImageSum, bring: b.fetchImage}, nil
	case s.ImageVolume != "":
		return b.storedImage(ctx)
	default:
		return b.fileImage(s.ImagePath)
	}
}

// fileImage hashes an image file of this host.
func (b *building) fileImage(path string) (source, error) {
	img, err := openImage(path, b.spec.Progress)
	if err != nil {
		return source{}, refuse(b.op, b.subject(), orchestrator.ErrNotFound, err.Error(), "make the image first")
	}
	return source{id: img.sha256, file: img.file, bring: func(ctx context.Context) (string, error) {
		return b.c.uploadImage(ctx, b.op, b.subject(), b.spec, img)
	}}, nil
}

// storedImage finds an image that is on a storage of the node already. Its size
// and time name its content: the cluster tells no digest.
func (b *building) storedImage(ctx context.Context) (source, error) {
	volid := b.spec.ImageVolume
	storage, _, _ := strings.Cut(volid, ":")
	var list []struct {
		VolID string  `json:"volid"`
		Size  flexInt `json:"size"`
		CTime flexInt `json:"ctime"`
	}
	if err := b.c.get(ctx, contentPath(b.spec.Node, storage), nil, &list); err != nil {
		return source{}, explain(b.op, b.subject(), err, false)
	}
	for _, v := range list {
		if v.VolID == volid {
			id := fmt.Sprintf("%s %d %d", volid, v.Size, v.CTime)
			return source{id: id, bring: func(context.Context) (string, error) { return volid, nil }}, nil
		}
	}
	stores, err := b.c.Storages(ctx, b.spec.Node)
	if err != nil {
		return source{}, err
	}
	if _, missing := ImportStorage(b.spec.Node, storage, stores); missing != nil && strings.HasPrefix(volid, storage+":import/") {
		return source{}, &failure{op: b.op, subject: b.subject(), cause: missing.What, mend: missing.Mend, class: missing}
	}
	return source{}, refuse(b.op, b.subject(), orchestrator.ErrNotFound, "there is no image "+volid+" on that node",
		"put it there, or see with pvesm list "+storage+" what is")
}

// imageKinds are the kinds of files that the cluster imports disks from, by the
// end of their name. "img" is what some distributions call qcow2.
var imageKinds = map[string]string{".qcow2": "qcow2", ".img": "qcow2", ".raw": "raw", ".vmdk": "vmdk"}

// fetchImage has the node fetch the image and check its digest. One that is
// there already is only checked.
func (b *building) fetchImage(ctx context.Context) (string, error) {
	s := b.spec
	kind := imageKinds[strings.ToLower(path.Ext(s.ImageURL))]
	if kind == "" {
		return "", refuse(b.op, b.subject(), orchestrator.ErrDenied, "the kind of image is not told by the end of "+s.ImageURL,
			"use one that ends in .qcow2, .img, .raw or .vmdk")
	}
	storage, err := b.c.importStorage(ctx, b.op, b.subject(), s)
	if err != nil {
		return "", err
	}
	name := imageName(s.ImageSum, kind)
	s.Progress("fetch", 0, 0)
	err = b.c.carryOut(ctx, order{
		op: b.op, subject: b.subject(), node: s.Node, kind: "download", task: name, timeout: b.c.cfg.CloneTimeout, started: s.Started,
		send: func(ctx context.Context) (string, error) {
			return b.c.postTask(ctx, nodePath(s.Node)+"/storage/"+url.PathEscape(storage)+"/download-url", map[string]any{
				"content": "import", "filename": name, "url": s.ImageURL, "checksum": s.ImageSum, "checksum-algorithm": sumAlgorithm(s.ImageSum),
			})
		},
	})
	var f *failure
	if errors.As(err, &f) && isForbidden(f.err) {
		err = f.with(f.class, "to let the node fetch an image takes Sys.AccessNetwork on "+nodePath(s.Node)+" and Datastore.AllocateTemplate on /storage/"+storage)
	}
	return storage + ":import/" + name, err
}

// imageName is how an image is called on the storage.
func imageName(sum, kind string) string { return "savepoint-" + sum[:32] + "." + kind }

var hexRE = regexp.MustCompile(`\A[0-9a-f]+\z`)

// sumAlgorithm names what a checksum was made with, as the cluster calls it: its
// length tells. "" for one that is neither.
func sumAlgorithm(sum string) string {
	switch {
	case !hexRE.MatchString(sum):
	case len(sum) == 2*sha256.Size:
		return "sha256"
	case len(sum) == 2*sha512.Size:
		return "sha512"
	}
	return ""
}

// image is an open image file and what its content is.
type image struct {
	file   *os.File
	size   int64
	sha256 string
}

// openImage opens and hashes the image.
func openImage(path string, report func(stage string, done, total int64)) (image, error) {
	f, err := os.Open(path)
	if err != nil {
		return image{}, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	h := sha256.New()
	if err == nil {
		_, err = io.Copy(h, &progressReader{r: f, stage: "hash", total: info.Size(), report: report})
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return image{}, err
	}
	return image{file: f, size: info.Size(), sha256: hex.EncodeToString(h.Sum(nil))}, nil
}

// importStorage finds where an image can be put to.
func (c *Cluster) importStorage(ctx context.Context, op, subject string, spec TemplateSpec) (string, error) {
	list, err := c.Storages(ctx, spec.Node)
	if err != nil {
		return "", err
	}
	id, missing := ImportStorage(spec.Node, spec.ImportStorage, list)
	if missing != nil {
		return "", &failure{op: op, subject: subject, cause: missing.What, mend: missing.Mend, class: missing}
	}
	return id, nil
}

// importTypes are the types of storage that can hold images.
var importTypes = append([]string{"btrfs"}, fileTypes...)

// ImportStorage is where a node takes images of templates: the storage of that
// id, without one the first that does. Otherwise it says what is missing, with
// the command that mends it.
func ImportStorage(node, id string, list []Storage) (string, *orchestrator.UnsupportedError) {
	var could *Storage
	for i, s := range list {
		switch {
		case id != "" && s.ID != id:
		case s.Active && slices.Contains(s.Content, "import"):
			return s.ID, nil
		case could == nil && slices.Contains(importTypes, s.Type) && !slices.Contains(s.Content, "import"):
			could = &list[i]
		}
	}
	e := &orchestrator.UnsupportedError{What: "no storage of node " + node + " takes images for import"}
	if id != "" {
		e.What = fmt.Sprintf("storage %s of node %s takes no images for import", id, node)
	}
	switch {
	case could != nil:
		e.What += `: none of them has the content type "import"`
		if id != "" {
			e.What = fmt.Sprintf(`storage %s of node %s has not the content type "import"`, id, node)
		}
		e.Mend = could.AddContent("import")
	case id != "":
		e.Mend = "see pvesm status on " + node + "; images need an active storage of files: dir, nfs, cifs, cephfs or btrfs"
	default:
		e.Mend = "pvesm add dir images --path /var/lib/images --content import, or make one active that has the content type (see pvesm status on " + node + ")"
	}
	return "", e
}

// uploaded reports whether the storage holds the file with that size.
func (c *Cluster) uploaded(ctx context.Context, node, storage, volid string, size int64) (bool, error) {
	var list []struct {
		VolID string  `json:"volid"`
		Size  flexInt `json:"size"`
	}
	err := c.get(ctx, contentPath(node, storage), url.Values{"content": {"import"}}, &list)
	if err != nil {
		return false, err
	}
	for _, v := range list {
		if v.VolID == volid {
			return int64(v.Size) == size, nil
		}
	}
	return false, nil
}
