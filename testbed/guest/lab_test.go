package guest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// labCache is where images are kept between test runs.
func labCache(t *testing.T) string {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("needs mmdebstrap and the network: set SAVEPOINT_LAB=1")
	}
	dir, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLabBuildIsCached(t *testing.T) {
	dir := labCache(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	opts := Options{CacheDir: dir, Progress: func(s string) { t.Log(s) }}
	first, err := Build(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	opts.Progress = func(s string) { t.Errorf("a second build did something: %s", s) }
	start := time.Now()
	second, err := Build(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	if !second.Cached || second.Path != first.Path {
		t.Errorf("second build: got %+v, want the first one's image %s", second, first.Path)
	}
	t.Logf("%s, looked up in %v", second.Path, time.Since(start))
}

func TestLabStockIsCached(t *testing.T) {
	dir := labCache(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	opts := Options{CacheDir: dir, Progress: func(s string) { t.Log(s) }}
	first, err := BuildStock(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(first.Manifest)
	if err != nil || !strings.Contains(string(manifest), "\ncloud-init ") || strings.Contains(string(manifest), "qemu-guest-agent ") {
		t.Errorf("the image is no stock one: %v\n%s", err, manifest)
	}
	second, err := BuildStock(ctx, opts)
	if err != nil || !second.Cached || second.Path != first.Path {
		t.Errorf("second build: got %+v, %v, want the first one's image %s", second, err, first.Path)
	}
}
