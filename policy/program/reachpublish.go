package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

const (
	pushOptions     = "-fundq46v --dry-run --force --force-with-lease?=text --force-if-includes --all --branches --tags --follow-tags --mirror --prune --delete --set-upstream --atomic --quiet --verbose --porcelain --no-verify --progress --no-progress --thin --no-thin --ipv4 --ipv6"
	registryOptions = "-fs --registry=text --access=text --tag=text --dry-run --force --ignore-scripts --no-git-checks --provenance --json --silent --workspaces --workspace=text -w=text"
	cargoOptions    = "-q -v -n -p=text -j=text -F=text --dry-run --allow-dirty --no-verify --package=text --workspace --locked --offline --frozen --all-features --no-default-features --features=text --quiet --verbose --jobs=text --exclude=text"
)

// localRepository reports whether git takes the text for a directory of this
// machine, whatever remotes are configured. What lies above the working
// directory is not told apart: that directory may be a mount of elsewhere.
func localRepository(a string) bool {
	if rest, ok := strings.CutPrefix(a, "file://"); ok {
		a = rest
		return strings.HasPrefix(a, "/") && shell.Known(a)
	}
	return said(a) && !strings.Contains(a, "::") &&
		(a == "." || strings.HasPrefix(a, "/") || strings.HasPrefix(a, "./")) && !unknownStart(a)
}

// push is a plain git push: what is behind the word, taken apart.
func (r *reacher) push() (parsed, bool) {
	args := r.args
	for len(args) > 1 && args[0] == "-C" {
		args = args[2:]
	}
	if r.name != "git" || len(args) == 0 || args[0] != "push" || r.sc.Assigned(r.call, "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_CONFIG_GLOBAL", "GIT_DIR") {
		return parsed{}, false
	}
	return strictly(pushOptions, args[1:])
}

// pushes proves that a git push goes to a directory of this machine.
func (r *reacher) pushes() bool {
	p, ok := r.push()
	return ok && len(p.operands) > 0 && localRepository(p.operands[0])
}

// publishes proves for programs that publish that they do so on this machine.
func (r *reacher) publishes() bool {
	if len(r.args) == 0 {
		return false
	}
	address := func(options, sub, name string) bool {
		if r.args[0] != sub {
			return false
		}
		p, ok := strictly(options, r.args[1:])
		o, once := p.single(name)
		return ok && once && localAddress(o.Value)
	}
	switch r.name {
	case "npm", "pnpm", "yarn", "cnpm":
		return address(registryOptions, "publish", "--registry") || address(registryOptions, "unpublish", "--registry")
	case "twine":
		return address("-u=text -p=text --repository-url=text --skip-existing --non-interactive --verbose --username=text --password=text --disable-progress-bar", "upload", "--repository-url")
	case "gem":
		return address("--host=text", "push", "--host")
	case "uv":
		return address("--publish-url=text --check-url=text --username=text --password=text --token=text -u=text -p=text -t=text", "publish", "--publish-url")
	case "docker", "podman", "nerdctl", "buildah":
		args := r.args
		if args[0] == "image" && len(args) > 1 {
			args = args[1:]
		}
		if args[0] != "push" {
			return false
		}
		p, ok := strictly("-qa --quiet --all-tags --tls-verify?=text", args[1:])
		return ok && len(p.operands) == 1 && loopImage.MatchString(p.operands[0]) && !strings.Contains(p.operands[0], "..")
	case "helm", "oras", "crane", "skopeo", "cosign":
		p, ok := r.strictly("--plain-http --insecure --insecure-skip-tls-verify --dest-tls-verify=text --src-tls-verify=text --allow-insecure-registry")
		n := len(p.operands)
		if !ok || n < 2 || p.operands[0] != "push" && p.operands[0] != "copy" {
			return false
		}
		if r.name == "oras" {
			return n > 1 && loopImage.MatchString(p.operands[1])
		}
		return loopImage.MatchString(p.operands[n-1]) || strings.HasPrefix(p.operands[n-1], "oci://") && localAddress(p.operands[n-1])
	}
	return false
}

var (
	plainWord = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	// askers have sub-commands that they print the help of, whatever else is
	// on the line; run, exec and ssh hand --help on.
	askers = []string{"gh", "glab", "docker", "podman", "kubectl", "helm", "terraform", "tofu", "aws", "gcloud", "az", "npm", "cargo", "gem", "twine", "poetry", "uv", "supabase", "firebase", "heroku",
		"flyctl", "fly", "vercel", "netlify", "wrangler", "pulumi", "cdk", "ansible", "ansible-playbook", "vault", "nomad", "consul", "argocd", "flux", "doctl", "hcloud", "eksctl", "rclone", "stripe",
		"goreleaser", "prisma", "flyway", "liquibase", "restic", "borg", "mc", "s3cmd", "git", "hub", "tea", "serverless", "sam", "packer", "gsutil", "databricks", "snow", "oc", "velero", "istioctl"}
	handsOn = []string{"run", "exec", "ssh", "x", "dlx", "start", "compose", "debug", "attach", "shell", "with", "sh", "tunnel", "plugin", "extension", "alias"}
)

// printsHelp reports whether --help behind plain words makes the program print
// and end. sure is for programs that print it themselves, without a pager.
func printsHelp(name string, args []string) (prints, sure bool) {
	n := len(args)
	if n == 0 || n > 5 || !slices.Contains(askers, name) {
		return false, false
	}
	words := args[:n-1]
	switch {
	case args[n-1] == "--help":
	case args[n-1] == "-help" && slices.Contains([]string{"terraform", "tofu", "packer", "vault", "consul", "nomad"}, name):
	case args[n-1] == "-h" && (name == "git" || name == "gh" || name == "cargo" || name == "terraform"):
	case args[0] == "help":
		words = args[1:]
	case args[n-1] == "help" && name == "aws":
	default:
		return false, false
	}
	for _, w := range words {
		if !plainWord.MatchString(w) || slices.Contains(handsOn, w) {
			return false, false
		}
	}
	sure = args[n-1] == "--help" && slices.Contains([]string{"gh", "docker", "podman", "kubectl", "helm", "npm", "glab", "twine", "supabase", "flyctl"}, name)
	return true, sure
}

// rehearses proves for programs that publish that they only try.
func (r *reacher) rehearses() bool {
	if prints, _ := printsHelp(r.name, r.args); prints {
		return true
	}
	if p, ok := r.push(); ok {
		return hasFlag(p, "-n", "--dry-run") && !slices.ContainsFunc(p.operands, func(o string) bool {
			return !shell.Known(o) || strings.Contains(o, "::") || strings.Contains(o, "://-")
		})
	}
	if len(r.args) == 0 {
		return false
	}
	dry := func(sub, options, flag string) bool {
		if r.args[0] != sub {
			return false
		}
		p, ok := strictly(options, r.args[1:])
		return ok && hasFlag(p, flag)
	}
	switch r.name {
	case "npm", "pnpm", "cnpm", "bun":
		return dry("publish", registryOptions, "--dry-run") || dry("unpublish", registryOptions, "--dry-run")
	case "cargo":
		return dry("publish", cargoOptions, "--dry-run") || slices.Contains(r.args, "-n") && dry("publish", cargoOptions, "-n")
	case "poetry", "uv", "pdm":
		return dry("publish", "-nvq --dry-run --build --skip-existing --no-interaction -r=text --repository=text", "--dry-run")
	case "goreleaser":
		return dry("release", "-f=text -p=text --snapshot --clean --rm-dist --skip=text --skip-publish --parallelism=text --config=text --timeout=text --single-target --verbose", "--snapshot")
	case "mvn", "mvnw", "gradle", "gradlew":
		return slices.Contains(r.args, "--dry-run") && !slices.ContainsFunc(r.args, func(a string) bool {
			return !shell.Known(a) || strings.HasPrefix(a, "-I") || strings.Contains(a, "init-script")
		})
	case "semantic-release", "release-it", "np", "lerna", "changeset":
		return slices.Contains(r.args, "--dry-run") && !slices.ContainsFunc(r.args, func(a string) bool { return !shell.Known(a) })
	}
	return false
}

// reads reports whether the first word, behind options that only choose the
// cluster, is one of those that change nothing there. Words further on are
// names, and names may look like orders.
func (r *reacher) reads() bool {
	p, ok := strictly("-n=text --namespace=text --context=text --kube-context=text --kubeconfig=text --cluster=text --user=text", firstWords(r.args))
	if !ok || len(p.operands) == 0 || slices.ContainsFunc(r.args, carries) {
		return false
	}
	list := []string{"get", "describe", "logs", "explain", "diff", "version", "api-resources", "api-versions", "top", "cluster-info", "events"}
	if r.name == "helm" {
		list = []string{"diff", "template", "lint", "show", "search", "get", "status", "history", "list", "ls", "env", "version", "verify", "package"}
	}
	return slices.Contains(list, p.operands[0])
}

// firstWords cuts the arguments behind the first one that is no option, and no
// value of one that chooses the cluster.
func firstWords(args []string) []string {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case slices.Contains([]string{"-n", "--namespace", "--context", "--kube-context", "--kubeconfig", "--cluster", "--user"}, a):
			i++
		case a == "" || a[0] != '-':
			return args[:i+1]
		}
	}
	return args
}

// graphRead is a request in the query language that changes nothing.
var graphRead = regexp.MustCompile(`(?s)^query=\s*(?:query\b[^"]*|\{.*)$`)

// inquires proves for programs that could send that they send nothing.
func (r *reacher) inquires() bool {
	if len(r.args) == 0 {
		return false
	}
	switch r.name {
	case "openssl":
		if r.args[0] != "s_client" {
			return false
		}
		p, ok := taken(&Spec{Single: true, Options: "-connect=text -host=text -port=text -servername=text -showcerts -CAfile=text -CApath=text -verify=text -verify_return_error -verify_hostname=text -tls1 -tls1_1 -tls1_2 -tls1_3 -no_tls1_3 -no_ign_eof -ign_eof -brief -quiet -status -starttls=text -alpn=text -cipher=text -ciphersuites=text -prexit -4 -6 -noservername -state -tlsextdebug -msg -debug -crlf -nocommands"}, r.args[1:])
		in := r.call.Stdin
		quiet := in.Known && slices.Contains([]string{"", "Q", "q", "QUIT", "quit", "x"}, strings.TrimSpace(in.Text))
		return quiet && ok && !p.loose && !slices.ContainsFunc(r.args, func(a string) bool { return !said(a) })
	case "helm", "kubectl", "oc":
		return r.reads()
	case "gh":
		if len(r.args) < 3 || r.args[0] != "api" || r.args[1] != "graphql" {
			return false
		}
		p, ok := strictly("-f=text -F=text -q=text -t=text --jq=text --paginate --raw-field=text --field=text --template=text --slurp", r.args[2:])
		reads := false
		for _, o := range p.options {
			if o.Name == "-f" || o.Name == "-F" || o.Name == "--raw-field" || o.Name == "--field" {
				if !shell.Known(o.Value) || strings.Contains(o.Value, "=@") || strings.Contains(o.Value, "mutation") {
					return false
				}
				reads = reads || graphRead.MatchString(o.Value)
			}
		}
		return ok && reads && len(p.operands) == 0
	}
	return false
}
