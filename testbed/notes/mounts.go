package notes

import "strings"

// Mount is one line of a mount table: where it is mounted, and the file system's type.
type Mount struct{ At, Kind string }

// Mounts reads a mount table (proc(5), mountinfo), in its order. A line that is cut
// short is left out: the kernel writes none.
func Mounts(table string) []Mount {
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var all []Mount
	for line := range strings.Lines(table) {
		head, tail, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(head), strings.Fields(tail)
		if len(f) < 5 || len(g) == 0 {
			continue
		}
		all = append(all, Mount{At: plain.Replace(f[4]), Kind: g[0]})
	}
	return all
}
