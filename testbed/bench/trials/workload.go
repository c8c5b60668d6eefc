package trials

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"time"

	"savepoint/testbed/bench"
)

// workload is a command whose cost under savepoint is measured.
type workload struct {
	name string
	// command may be run again after clean. It is written for the workspace.
	command string
	clean   string // "" = nothing to undo
	quick   bool   // part of a quick run
	reads   bool   // proved read-only
	fails   bool   // it ends with exit code failed, after it has changed something
}

// workloadFails is the label of the command that fails, failed its exit code.
const (
	workloadFails = "fails"
	failed        = 3
)

// out is where workloads put what they make.
const out = "/workspace/out"

// workloads are an installation with pip, which one reader of the paper says its
// command is, and what developers do all day.
func workloads() []workload {
	clean := "rm -rf " + out
	return []workload{
		{
			name: bench.WorkloadInstall, clean: clean,
			command: "python3 -m pip install --quiet --no-index --find-links " + stage + "/wheels --target " + out + " --no-cache-dir --disable-pip-version-check " + wheelName,
		},
		{name: bench.WorkloadRead, quick: true, reads: true, command: "ls /etc"},
		{name: "git-commit", clean: clean, command: "cp -r " + stage + "/project " + out + " && cd " + out + " && git init -q . && git add -A . && git -c user.name=b -c user.email=b@localhost commit -q -m one"},
		{name: "build", clean: clean, command: "cp -r " + stage + "/project " + out + " && python3 -m compileall -q " + out},
		{name: "tests", clean: clean, command: "cp -r " + stage + "/project " + out + " && cd " + out + " && python3 -m unittest -q"},
		{name: bench.WorkloadEdit, quick: true, clean: clean, command: "cp -r " + stage + "/project " + out + " && sed -i s/value/worth/g " + out + "/mod*.py"},
		{name: workloadFails, clean: clean, fails: true, command: "cp -r " + stage + "/project " + out + " && sed -i s/value/worth/g " + out + "/mod*.py && exit 3"},
	}
}

// workloadFiles are what workloads need in the guest.
func workloadFiles() map[string]string {
	files := map[string]string{"wheels/" + strings.ReplaceAll(wheelName, "-", "_") + "-1.0-py3-none-any.whl": wheel(wheelName, wheelModules)}
	maps.Copy(files, project())
	for mb, name := range sizes() {
		files["fill-"+name+".sh"] = fill(mb)
	}
	files["copy.sh"] = "set -e\nrm -rf " + copied + "\ncp -a /workspace " + copied + "\n"
	files["drop.sh"] = "rm -rf " + copied + "\n"
	// The workspace may be a mount point, so it is emptied and not replaced. What
	// the command left has to be gone then.
	files["back.sh"] = "set -e\nfind /workspace -mindepth 1 -delete\ncp -a " + copied + "/. /workspace/\nrm -rf " + copied + "\n[ ! -e " + out + " ]\n[ -e /workspace/.filled ]\n"
	files["shutil.sh"] = "exec python3 -c \"import shutil\nshutil.rmtree('" + copied + "', True)\nshutil.copytree('/workspace', '" + copied + "', symlinks=True)\"\n"
	files["shutil-drop.sh"] = "exec python3 -c \"import shutil\nshutil.rmtree('" + copied + "')\"\n"
	// What an arm wrote is on the disk before the next begins, which would have to
	// share the disk with it.
	files["clean.sh"] = "rm -rf " + out + " " + copied + "\nsync\n"
	return files
}

// copied is where the paper's way keeps its copy of the workspace: on the same
// file system.
const copied = "/var/tmp/savepoint-bench-copy"

// sizes of the workspace, in MiB, and what they are called.
func sizes() map[int]string { return map[int]string{10: "10MB", 250: bench.PaperSize, 1000: "1GB"} }

// fill makes the workspace as large as that: files of 4 KiB to 1 MiB, a
// directory for each hundred of them.
func fill(mb int) string {
	return fmt.Sprintf(`set -e
[ "$(cat /workspace/.filled 2>/dev/null)" = %[1]d ] && exit 0
rm -rf /workspace/fill
mkdir -p /workspace/fill
python3 - <<'PYTHON'
import os
left, n, seed = %[1]d << 20, 0, os.urandom(1 << 20)
sizes = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
while left > 0:
    d = "/workspace/fill/%%d" %% (n // 100)
    os.makedirs(d, exist_ok=True)
    size = min(sizes[n %% 5], left)
    at = (n * 4096) %% (1 << 20)
    with open("%%s/%%d" %% (d, n), "wb") as f:
        f.write((seed[at:] + seed)[:size])
    left, n = left - size, n + 1
PYTHON
chown -R agent:agent /workspace/fill
echo %[1]d > /workspace/.filled
sync
`, mb)
}

const (
	wheelName    = "savepoint-bench"
	wheelModules = 40
)

// wheel is a package of pure Python, made here so that no index is needed. Its
// size decides how long the installation takes.
func wheel(name string, modules int) string {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	record := ""
	add := func(path, content string) {
		f, _ := z.CreateHeader(&zip.FileHeader{Name: path, Method: zip.Deflate, Modified: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
		_, _ = f.Write([]byte(content)) // into memory
		sum := sha256.Sum256([]byte(content))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", path, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
	}
	pkg := strings.ReplaceAll(name, "-", "_")
	for i := range modules {
		add(fmt.Sprintf("%s/m%03d.py", pkg, i), module(i))
	}
	add(pkg+"/__init__.py", "")
	info := pkg + "-1.0.dist-info/"
	add(info+"METADATA", "Metadata-Version: 2.1\nName: "+name+"\nVersion: 1.0\n")
	add(info+"WHEEL", "Wheel-Version: 1.0\nGenerator: savepoint\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	f, _ := z.CreateHeader(&zip.FileHeader{Name: info + "RECORD", Method: zip.Deflate})
	_, _ = f.Write([]byte(record + info + "RECORD,,\n"))
	_ = z.Close()
	return buf.String()
}

// module is a Python module that takes its time to compile.
func module(n int) string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "def value%d(a, b=%d):\n    total = a * b + %d\n    return [total + i for i in range(b) if i %% 3]\n\n", i, i+n, n)
	}
	return b.String()
}

// project is a small repository with tests.
func project() map[string]string {
	files := map[string]string{}
	test := "import unittest\n"
	for i := range 60 {
		files[fmt.Sprintf("project/mod%02d.py", i)] = module(i)
		test += fmt.Sprintf("import mod%02d\n", i)
	}
	test += "\nclass All(unittest.TestCase):\n"
	for i := range 60 {
		test += fmt.Sprintf("    def test_%d(self):\n        self.assertEqual(mod%02d.value1(2, 3)[0], 2 * 3 + %d + 1)\n", i, i, i)
	}
	files["project/test_all.py"] = test
	return files
}
