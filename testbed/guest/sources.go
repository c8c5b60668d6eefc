package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// aptSource is one suite of one Debian mirror.
type aptSource struct {
	URI, Suite, Codename string
	Components           []string
}

func (s aptSource) line() string {
	return "deb " + s.URI + " " + s.Suite + " " + strings.Join(s.Components, " ")
}

// hostSources asks the host's apt for its Debian sources. Third-party sources
// are left out: only what Debian itself published goes into an image.
func hostSources(ctx context.Context) ([]aptSource, error) {
	cmd := exec.CommandContext(ctx, "apt-get", "indextargets",
		"--format", "$(ORIGIN)|$(REPO_URI)|$(SUITE)|$(CODENAME)|$(COMPONENT)|$(ARCHITECTURE)|$(RELEASE)", "Created-By: Packages")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read apt's sources: %w; give Options.Sources on a host without apt", err)
	}
	srcs := parseTargets(string(out))
	if len(srcs) == 0 {
		return nil, fmt.Errorf("read apt's sources: this host has no source of Debian packages for amd64 (or apt-get update never ran); add one or give Options.Sources")
	}
	return srcs, nil
}

// parseTargets reads lines ORIGIN|URI|SUITE|CODENAME|COMPONENT|ARCH|RELEASE.
func parseTargets(text string) []aptSource {
	var out []aptSource
	index := make(map[string]int)
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		f := strings.Split(sc.Text(), "|")
		if len(f) != 7 || f[0] != "Debian" || f[5] != "amd64" {
			continue
		}
		// RELEASE is the suite as the source names it; it is what apt fetches.
		key := f[1] + " " + f[6]
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key] = i
			out = append(out, aptSource{URI: f[1], Suite: f[6], Codename: f[3]})
		}
		if !slices.Contains(out[i].Components, f[4]) {
			out[i].Components = append(out[i].Components, f[4])
		}
	}
	return out
}

// codename is the release that the sources together describe: that of the one
// suite which is neither updates nor security nor backports.
func codename(srcs []aptSource) string {
	for _, s := range srcs {
		if !strings.Contains(s.Codename, "-") && s.Codename != "" {
			return s.Codename
		}
	}
	return ""
}

// forRelease keeps the sources that belong to the release.
func forRelease(srcs []aptSource, release string) []aptSource {
	var out []aptSource
	for _, s := range srcs {
		base, suffix, _ := strings.Cut(s.Codename, "-")
		if base == release && suffix != "backports" {
			s.Components = []string{"main"}
			out = append(out, s)
		}
	}
	return out
}

// release is the Debian release to build. On a Debian host it is the host's
// own, which a file says; asking apt takes a second and is done elsewhere only.
func (o Options) release(ctx context.Context) (string, error) {
	if o.Release != "" {
		return o.Release, nil
	}
	if len(o.Sources) > 0 {
		return "", errors.New("Options.Sources needs Options.Release beside it")
	}
	if data, err := os.ReadFile("/etc/os-release"); err == nil {
		if r := debianRelease(string(data)); r != "" {
			return r, nil
		}
	}
	sources, err := hostSources(ctx)
	if err != nil {
		return "", err
	}
	if r := codename(sources); r != "" {
		return r, nil
	}
	return "", errors.New("apt's sources name no Debian release; give Options.Release")
}

// debianRelease reads os-release; "" when it is not Debian's.
func debianRelease(text string) string {
	var id, release string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch name {
		case "ID":
			id = value
		case "VERSION_CODENAME":
			release = value
		}
	}
	if id != "debian" {
		return ""
	}
	return release
}

// hostAptOptions returns the host's own settings for fetching (proxies, the
// checks of dates), so that the build reaches the mirrors as the host does.
func hostAptOptions(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--format", "%f \"%v\";%n", "Acquire").Output()
	if err != nil {
		return nil, fmt.Errorf("read apt's configuration: %w", err)
	}
	return parseAptOptions(string(out)), nil
}

// parseAptOptions picks from lines `Name "value";` those that say how to fetch.
func parseAptOptions(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, " ")
		if !ok || value == `"";` || strings.HasSuffix(name, "::") {
			continue
		}
		low := strings.ToLower(name)
		for _, prefix := range []string{"acquire::http::", "acquire::https::", "acquire::ftp::", "acquire::socks::",
			"acquire::check-valid-until", "acquire::check-date", "acquire::retries", "acquire::forceipv4", "acquire::forceipv6", "acquire::queue-mode"} {
			if strings.HasPrefix(low, prefix) {
				out = append(out, strings.TrimSuffix(name+" "+value, ";"))
			}
		}
	}
	slices.Sort(out)
	return out
}
