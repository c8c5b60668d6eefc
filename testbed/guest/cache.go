package guest

import (
	"fmt"
	"os"
	"path/filepath"
)

// CacheDir is where images are kept unless somebody says otherwise:
// $SAVEPOINT_CACHE, else "savepoint" below the user's cache directory. The
// error says that the user has none ($XDG_CACHE_HOME or $HOME).
func CacheDir() (string, error) {
	if dir := os.Getenv("SAVEPOINT_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the image cache: %w; set SAVEPOINT_CACHE", err)
	}
	return filepath.Join(dir, "savepoint"), nil
}
